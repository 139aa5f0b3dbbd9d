// Discardable attributes that a dialect owns. Name and type stand once, in the dialect's folder; passes read and write
// them by that declaration, and the dialect verifies each one it finds.
//
//   inline constexpr OwnedAttribute<int64_t> stream{"plan.stream"};    // Plan.h
//   plan::stream.set(op, 1);
//   if (std::optional<int64_t> number = plan::stream.of(op)) ...
//
// mlir-tblgen's `discardableAttrs` would do for operations; it has no accessors for arguments and results.
#pragma once
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Operation.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include <optional>

namespace cleave {

// How a value is written as an attribute; an attribute class stands for itself.
template <typename T> struct AttributeOf {
  using Attr = T;
  using Read = T; // null where it is absent
  static Read read(T attribute) { return attribute; }
  static T make(mlir::MLIRContext *, T value) { return value; }
};
template <typename T, typename A> struct OptionalAttributeOf {
  using Attr = A;
  using Read = std::optional<T>;
};
template <> struct AttributeOf<int64_t> : OptionalAttributeOf<int64_t, mlir::IntegerAttr> {
  static Read read(Attr attribute) { return attribute ? Read(attribute.getInt()) : std::nullopt; }
  static Attr make(mlir::MLIRContext *context, int64_t value) {
    return mlir::Builder(context).getI64IntegerAttr(value);
  }
};
template <> struct AttributeOf<double> : OptionalAttributeOf<double, mlir::FloatAttr> {
  static Read read(Attr attribute) { return attribute ? Read(attribute.getValueAsDouble()) : std::nullopt; }
  static Attr make(mlir::MLIRContext *context, double value) { return mlir::Builder(context).getF64FloatAttr(value); }
};
template <> struct AttributeOf<llvm::StringRef> : OptionalAttributeOf<llvm::StringRef, mlir::StringAttr> {
  static Read read(Attr attribute) { return attribute ? Read(attribute.getValue()) : std::nullopt; }
  static Attr make(mlir::MLIRContext *context, llvm::StringRef value) { return mlir::StringAttr::get(context, value); }
};
template <>
struct AttributeOf<llvm::ArrayRef<int64_t>> : OptionalAttributeOf<llvm::ArrayRef<int64_t>, mlir::DenseI64ArrayAttr> {
  static Read read(Attr attribute) { return attribute ? Read(attribute.asArrayRef()) : std::nullopt; }
  static Attr make(mlir::MLIRContext *context, llvm::ArrayRef<int64_t> value) {
    return mlir::DenseI64ArrayAttr::get(context, value);
  }
};
// A list of strings.
template <> struct AttributeOf<llvm::ArrayRef<std::string>> {
  using Attr = mlir::ArrayAttr;
  using Read = std::vector<std::string>; // empty where it is absent
  static Read read(Attr attribute) {
    Read strings;
    if (attribute)
      for (auto text : attribute.getAsRange<mlir::StringAttr>()) strings.push_back(text.str());
    return strings;
  }
  static Attr make(mlir::MLIRContext *context, llvm::ArrayRef<std::string> value) {
    return mlir::Builder(context).getStrArrayAttr(llvm::SmallVector<llvm::StringRef>(value.begin(), value.end()));
  }
};
// A mark: there, or not.
struct Mark {};
template <> struct AttributeOf<Mark> {
  using Attr = mlir::UnitAttr;
  using Read = bool;
  static Read read(Attr attribute) { return attribute != nullptr; }
  static Attr make(mlir::MLIRContext *context, Mark) { return mlir::UnitAttr::get(context); }
};

template <typename T> class OwnedAttribute {
  using Form = AttributeOf<T>;

public:
  using Attr = typename Form::Attr;
  using Read = typename Form::Read;
  constexpr OwnedAttribute(llvm::StringLiteral name) : text(name) {}
  constexpr llvm::StringRef name() const { return text; }

  Read of(mlir::Operation *op) const { return Form::read(op->getAttrOfType<Attr>(text)); }
  Read of(mlir::FunctionOpInterface function, unsigned argument) const {
    return Form::read(function.getArgAttrOfType<Attr>(argument, text));
  }
  Read ofResult(mlir::FunctionOpInterface function, unsigned result) const {
    return Form::read(function.getResultAttrOfType<Attr>(result, text));
  }
  Read in(mlir::DictionaryAttr attributes) const {
    return Form::read(attributes ? attributes.getAs<Attr>(text) : Attr());
  }
  bool isOn(mlir::Operation *op) const { return op->hasAttr(text); }

  void set(mlir::Operation *op, T value = T()) const { op->setAttr(text, Form::make(op->getContext(), value)); }
  void setArg(mlir::FunctionOpInterface function, unsigned argument, T value = T()) const {
    function.setArgAttr(argument, text, Form::make(function->getContext(), value));
  }
  // True where it was there.
  bool remove(mlir::Operation *op) const { return op->removeAttr(text) != nullptr; }
  void removeArg(mlir::FunctionOpInterface function, unsigned argument) const {
    function.removeArgAttr(argument, text);
  }
  void copy(mlir::Operation *from, mlir::Operation *to) const {
    if (mlir::Attribute value = from->getAttr(text)) to->setAttr(text, value);
  }
  mlir::NamedAttribute named(mlir::MLIRContext *context, T value = T()) const {
    return {mlir::StringAttr::get(context, text), Form::make(context, value)};
  }

private:
  llvm::StringLiteral text;
};

// One of a dialect's attributes, as its verifier knows it.
struct OwnedAttributeRule {
  llvm::StringRef name;
  bool (*isOfType)(mlir::Attribute);
  bool (*mayStandOn)(mlir::Operation *); // of arguments and results: the function
  llvm::StringRef place;                 // "a function", for the error
};
template <typename T>
OwnedAttributeRule owned(OwnedAttribute<T> attribute, bool (*mayStandOn)(mlir::Operation *), llvm::StringRef place) {
  auto isOfType = [](mlir::Attribute value) { return mlir::isa<typename AttributeOf<T>::Attr>(value); };
  return {attribute.name(), isOfType, mayStandOn, place};
}
// What attributes stand on.
inline bool isAny(mlir::Operation *) { return true; }
bool isFunction(mlir::Operation *op);
bool isModule(mlir::Operation *op);

// Error: an attribute that no rule names, of another type, or on another operation.
mlir::LogicalResult verifyOwned(mlir::Operation *op, mlir::NamedAttribute attribute,
                                llvm::ArrayRef<OwnedAttributeRule> rules);

} // namespace cleave
