#ifndef CLEAVE_PLACE_DIALECT_TD
#define CLEAVE_PLACE_DIALECT_TD
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"

def Place_Dialect : Dialect {
  let name = "place";
  let cppNamespace = "::cleave::place";
  let summary = "where an operation stands in the training step";
  let useDefaultAttributePrinterParser = 1;
  let hasOperationAttrVerify = 1;
  let hasRegionArgAttrVerify = 1;
  let hasRegionResultAttrVerify = 1;
}

def Place_Phase : I32EnumAttr<"Phase", "a part of the training step", [
    I32EnumAttrCase<"Forward", 0, "forward">, I32EnumAttrCase<"Backward", 1, "backward">,
    I32EnumAttrCase<"Update", 2, "update">]> {
  let cppNamespace = "::cleave::place";
  let genSpecializedAttr = 0;
}

def Place_Number : OptionalParameter<"std::optional<int64_t>">;

def Place_AtAttr : AttrDef<Place_Dialect, "At"> {
  let mnemonic = "at";
  let summary = "where an operation stands in the step";
  let description = [{
    `phase`: absent before the training phase. `stage`: of the pipeline. `origin`: in a pipeline's step a number of each
    forward op, and on a backward op that of the forward op it differentiates. `segment`: of the forward ops that the
    backward pass may recompute together; `recompute`: it does so with this one. `recomputed`: the op is a copy in the
    backward pass, of an op of that segment. `chunk`: of the parts in which ChunkProducts runs some operations, the one
    that it belongs to.

        %y = onnx.Tanh %x {place.at = #place.at<phase = forward, stage = 1, segment = 3, recompute = true>}
  }];
  let parameters = (ins OptionalParameter<"std::optional<::cleave::place::Phase>">:$phase, Place_Number:$stage,
                    Place_Number:$origin, Place_Number:$segment, DefaultValuedParameter<"bool", "false">:$recompute,
                    Place_Number:$recomputed, Place_Number:$chunk);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}
#endif
