#include "dialects/plan/Plan.h"

namespace cleave::plan {
using namespace mlir;

LogicalResult ContractCommandOp::verify() {
  size_t expected = getBatch().size() + 2;
  for (ArrayRef<int64_t> strides : {getLhsStrides(), getRhsStrides(), getOutStrides()})
    if (strides.size() != expected)
      return emitOpError() << "needs " << expected << " strides a tensor, but one has " << strides.size();
  int64_t elements = getM() * getN();
  for (int64_t size : getBatch()) elements *= size;
  if (cast<RankedTensorType>(getY().getType()).getNumElements() != elements)
    return emitOpError() << "computes " << elements << " elements for a result of type " << getY().getType();
  if (getSum() && (cast<RankedTensorType>(getSum().getType()).getNumElements() != elements || getActivation()))
    return emitOpError("adds to a tensor of as many elements, and ends with that");
  if (getMore().size() != size_t(getKeepsPreActivation()) + getSumOf().has_value())
    return emitOpError() << "has " << getMore().size() << " results besides the product";
  bool isGradient = getActivation() == "gelu_gradient";
  if (getActivation() && !isGradient && getActivation() != "gelu")
    return emitOpError() << "has no activation '" << *getActivation() << "'";
  if (isGradient != bool(getPreActivation()) || (getKeepsPreActivation() && getActivation() != "gelu"))
    return emitOpError("reads its pre-activation for gelu_gradient, and only gelu writes one");
  return success();
}

LogicalResult CopyCommandOp::verify() {
  if (getSourceStrides().size() != getSizes().size() || getTargetStrides().size() != getSizes().size())
    return emitOpError("needs as many strides as sizes");
  return success();
}

LogicalResult ViewOp::verify() {
  auto from = cast<RankedTensorType>(getX().getType()), to = cast<RankedTensorType>(getY().getType());
  if (from.getElementType() != to.getElementType()) return emitOpError("must keep the element type");
  int64_t begin = getOffset(), end = begin + to.getNumElements();
  if (begin < 0 || end > from.getNumElements())
    return emitOpError() << "looks at elements [" << begin << ", " << end << ") of a tensor that has "
                         << from.getNumElements();
  return success();
}

} // namespace cleave::plan
