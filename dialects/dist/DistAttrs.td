#ifndef CLEAVE_DIST_ATTRS_TD
#define CLEAVE_DIST_ATTRS_TD
include "mlir/IR/OpBase.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/BuiltinAttributes.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Dist_Dialect : Dialect {
  let name = "dist";
  let cppNamespace = "::cleave::dist";
  let summary = "meshes, shardings, resharding, collectives, stages and transfers";
  let useDefaultAttributePrinterParser = 1;
  let hasOperationAttrVerify = 1;
  let hasRegionArgAttrVerify = 1;
}

def Dist_ShardingAttr : AttrDef<Dist_Dialect, "Sharding"> {
  let mnemonic = "sharding";
  let summary = "a layout in the notation of algebra/sharding.h, e.g. #dist.sharding<\"[{dp},{}] partial(tp)\">";
  let parameters = (ins StringRefParameter<"layout">:$layout);
  let assemblyFormat = "`<` $layout `>`";
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    ::cleave::dist::Sharding getSharding() const;
    static ShardingAttr get(::mlir::MLIRContext *context, const ::cleave::dist::Sharding &sharding);
  }];
}

def Dist_MeshAttr : AttrDef<Dist_Dialect, "Mesh"> {
  let mnemonic = "mesh";
  let summary = "the mesh that a module is split over, e.g. #dist.mesh<\"dp=2,tp=4\">";
  let parameters = (ins StringRefParameter<"text">:$text);
  let assemblyFormat = "`<` $text `>`";
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    ::cleave::dist::Mesh getMesh() const;
    static MeshAttr get(::mlir::MLIRContext *context, const ::cleave::dist::Mesh &mesh);
  }];
}

def Dist_AxesAttr : AttrDef<Dist_Dialect, "Axes"> {
  let mnemonic = "axes";
  let summary = "axes of the mesh, major first, e.g. #dist.axes<[dp, tp]>";
  let parameters = (ins ArrayRefParameter<"::mlir::StringAttr">:$names);
  let hasCustomAssemblyFormat = 1;
  let extraClassDeclaration = [{
    ::cleave::dist::Axes getAxes() const;
    static AxesAttr get(::mlir::MLIRContext *context, const ::cleave::dist::Axes &axes);
  }];
}

def Dist_FactorsAttr : AttrDef<Dist_Dialect, "Factors"> {
  let mnemonic = "factors";
  let summary = "the axes that split each factor of an operation's rule";
  let description = [{
    `partial`: axes over which an operand is a partial sum that passes through the operation.

        #dist.factors<[dp], [], [tp]>      #dist.factors<[dp], [] partial [tp]>
  }];
  let parameters = (ins ArrayRefParameter<"::cleave::dist::AxesAttr">:$axes, "::cleave::dist::AxesAttr":$partial);
  let hasCustomAssemblyFormat = 1;
  let extraClassDeclaration = [{
    ::cleave::dist::FactorSharding getFactors() const;
    static FactorsAttr get(::mlir::MLIRContext *context, const ::cleave::dist::FactorSharding &factors,
                           const ::cleave::dist::Axes &partial = {});
  }];
}

// An enum of the sharding algebra, which the planner and the runtime share; accessors of operations give its value.
class Dist_EnumAttr<string name, string type, string word> : AttrDef<Dist_Dialect, name> {
  let mnemonic = word;
  let parameters = (ins AttrParameter<type, "the value">:$value);
  let assemblyFormat = "`<` $value `>`";
  let returnType = type;
  let convertFromStorage = "$_self.getValue()";
  let constBuilderCall = "::cleave::dist::" # name # "Attr::get($_builder.getContext(), $0)";
}
def Dist_CollectiveAttr : Dist_EnumAttr<"Collective", "::cleave::dist::Collective", "collective"> {
  let summary = "a kind of collective, e.g. #dist.collective<all_reduce>";
}
def Dist_ReductionAttr : Dist_EnumAttr<"Reduction", "::cleave::dist::Reduction", "reduction"> {
  let summary = "what devices' values are combined with, e.g. #dist.reduction<sum>";
}
#endif
