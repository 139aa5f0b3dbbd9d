#include "compiler/codegen/kernels/narrow_floats.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"

namespace cleave::codegen {
namespace {

bool isNarrow(const llvm::Type *type) { return type->getScalarType()->is16bitFPTy(); }

class InSingle {
  using Type = llvm::Type;
  using Value = llvm::Value;

public:
  InSingle(llvm::Instruction &instruction, bool converts) : one(instruction), b(&instruction), converts(converts) {}

  // The value that takes the instruction's place; null: it stays, since it only moves values.
  Value *result() {
    switch (one.getOpcode()) {
    case llvm::Instruction::FPExt: {
      Value *wide = widen(one.getOperand(0));
      return wide->getType() == one.getType() ? wide : b.CreateFPExt(wide, one.getType());
    }
    case llvm::Instruction::FPTrunc: {
      Value *from = one.getOperand(0);
      return narrow(b.CreateFPTrunc(from, like(from->getType(), b.getFloatTy())), one.getType());
    }
    case llvm::Instruction::SIToFP:
    case llvm::Instruction::UIToFP:
      return narrow(b.CreateCast(llvm::cast<llvm::CastInst>(one).getOpcode(), one.getOperand(0),
                                 like(one.getType(), b.getFloatTy())),
                    one.getType());
    case llvm::Instruction::FNeg:
    case llvm::Instruction::FAdd:
    case llvm::Instruction::FSub:
    case llvm::Instruction::FMul:
    case llvm::Instruction::FDiv:
    case llvm::Instruction::FRem:
    case llvm::Instruction::FCmp:
    case llvm::Instruction::FPToSI:
    case llvm::Instruction::FPToUI:
      return computed(one.clone());
    case llvm::Instruction::Call:
      if (auto *intrinsic = llvm::dyn_cast<llvm::IntrinsicInst>(&one)) return called(*intrinsic);
      return nullptr;
    default:
      return nullptr;
    }
  }

private:
  static Type *like(Type *shape, Type *scalar) { return shape->getWithNewType(scalar); }
  Value *number(Value *of, uint32_t bits) { return llvm::ConstantInt::get(of->getType(), bits); }
  Value *asBits(Value *x) { return b.CreateBitCast(x, like(x->getType(), b.getInt32Ty())); }
  Value *asFloat(Value *bits) { return b.CreateBitCast(bits, like(bits->getType(), b.getFloatTy())); }

  // The same operation on widened operands.
  Value *computed(llvm::Instruction *wide) {
    for (llvm::Use &operand : wide->operands())
      if (isNarrow(operand->getType())) operand.set(widen(operand.get()));
    if (isNarrow(one.getType())) wide->mutateType(like(one.getType(), b.getFloatTy()));
    b.Insert(wide);
    return isNarrow(one.getType()) ? narrow(wide, one.getType()) : wide;
  }

  // A function of floats that has one form for each type of its first operand.
  Value *called(llvm::IntrinsicInst &call) {
    if (llvm::none_of(call.args(), [](const llvm::Use &operand) { return isNarrow(operand->getType()); }))
      return nullptr;
    switch (call.getIntrinsicID()) {
    case llvm::Intrinsic::fabs:
    case llvm::Intrinsic::copysign:
    case llvm::Intrinsic::sqrt:
    case llvm::Intrinsic::fma:
    case llvm::Intrinsic::fmuladd:
    case llvm::Intrinsic::maximum:
    case llvm::Intrinsic::minimum:
    case llvm::Intrinsic::maxnum:
    case llvm::Intrinsic::minnum:
    case llvm::Intrinsic::floor:
    case llvm::Intrinsic::ceil:
    case llvm::Intrinsic::trunc:
    case llvm::Intrinsic::rint:
    case llvm::Intrinsic::nearbyint:
    case llvm::Intrinsic::round:
    case llvm::Intrinsic::roundeven:
    case llvm::Intrinsic::exp:
    case llvm::Intrinsic::exp2:
    case llvm::Intrinsic::log:
    case llvm::Intrinsic::log2:
    case llvm::Intrinsic::log10:
    case llvm::Intrinsic::pow:
    case llvm::Intrinsic::sin:
    case llvm::Intrinsic::cos:
    case llvm::Intrinsic::tan:
    case llvm::Intrinsic::tanh:
      break;
    default:
      return nullptr;
    }
    llvm::SmallVector<Value *> operands;
    for (llvm::Use &operand : call.args())
      operands.push_back(isNarrow(operand->getType()) ? widen(operand.get()) : operand.get());
    llvm::CallInst *wide = b.CreateIntrinsic(call.getIntrinsicID(), {operands[0]->getType()}, operands);
    wide->copyFastMathFlags(&call);
    return narrow(wide, call.getType());
  }

  Value *widen(Value *x) {
    if (converts && x->getType()->getScalarType()->isHalfTy())
      return b.CreateFPExt(x, like(x->getType(), b.getFloatTy()));
    Type *i16 = like(x->getType(), b.getInt16Ty()), *i32 = like(x->getType(), b.getInt32Ty());
    Value *bits = b.CreateZExt(b.CreateBitCast(x, i16), i32);
    if (x->getType()->getScalarType()->isBFloatTy()) return asFloat(b.CreateShl(bits, 16));
    // The exponent and the fraction at their places; the exponent's bias grows from 15 to 127.
    Value *magnitude = b.CreateShl(b.CreateAnd(bits, number(bits, 0x7fff)), 13);
    Value *exponent = b.CreateAnd(magnitude, number(bits, 0x1f << 23));
    Value *normal = b.CreateAdd(magnitude, number(bits, (127 - 15) << 23));
    // Infinity and NaN have the largest exponent of both. A subnormal number is a multiple of 2^-24.
    Value *special = b.CreateAdd(normal, number(bits, (128 - 16) << 23));
    Value *unit = asFloat(number(bits, 113 << 23));
    Value *subnormal = asBits(b.CreateFSub(asFloat(b.CreateAdd(normal, number(bits, 1 << 23))), unit));
    Value *value = b.CreateSelect(b.CreateICmpEQ(exponent, number(bits, 0x1f << 23)), special,
                                  b.CreateSelect(b.CreateICmpEQ(exponent, number(bits, 0)), subnormal, normal));
    return asFloat(b.CreateOr(value, b.CreateShl(b.CreateAnd(bits, number(bits, 0x8000)), 16)));
  }

  Value *narrow(Value *x, Type *type) {
    if (converts && type->getScalarType()->isHalfTy()) return b.CreateFPTrunc(x, type);
    Value *half = type->getScalarType()->isBFloatTy() ? narrowToBrain(x) : narrowToHalf(x);
    return b.CreateBitCast(b.CreateTrunc(half, like(type, b.getInt16Ty())), type);
  }

  // The upper half of the bits. Adding 0x7fff, and one more where the result would be odd, rounds. A NaN gets its bits
  // by `or`: a choice between two 16-bit floats would be made one by one.
  Value *narrowToBrain(Value *x) {
    Value *bits = asBits(x);
    Value *odd = b.CreateAnd(b.CreateLShr(bits, 16), number(bits, 1));
    Value *rounded = b.CreateAdd(bits, b.CreateAdd(odd, number(bits, 0x7fff)));
    Value *isNaN = b.CreateSExt(b.CreateFCmpUNO(x, x), bits->getType());
    return b.CreateLShr(b.CreateOr(rounded, b.CreateAnd(isNaN, number(bits, 0x7fc00000))), 16);
  }

  Value *narrowToHalf(Value *x) {
    Value *bits = asBits(x), *sign = b.CreateAnd(bits, number(bits, 0x80000000u));
    Value *magnitude = b.CreateXor(bits, sign);
    // As above, 13 bits are rounded away; what rounds up to 2^16 becomes infinity by its carry.
    Value *odd = b.CreateAnd(b.CreateLShr(magnitude, 13), number(bits, 1));
    Value *bias = number(bits, ((15u - 127u) << 23) + 0xfff);
    Value *normal = b.CreateLShr(b.CreateAdd(b.CreateAdd(magnitude, bias), odd), 13);
    // 0.5 has a last place of 2^-24, the unit of subnormal numbers: the addition rounds to it.
    Value *half = asFloat(number(bits, 0x3f000000));
    Value *subnormal = b.CreateSub(asBits(b.CreateFAdd(asFloat(magnitude), half)), number(bits, 0x3f000000));
    Value *large = b.CreateSelect(b.CreateICmpUGT(magnitude, number(bits, 0x7f800000)), number(bits, 0x7e00),
                                  number(bits, 0x7c00));
    Value *value = b.CreateSelect(b.CreateICmpULT(magnitude, number(bits, 0x38800000)), subnormal, normal);
    value = b.CreateSelect(b.CreateICmpUGE(magnitude, number(bits, 0x47800000)), large, value);
    return b.CreateOr(value, b.CreateLShr(sign, 16));
  }

  llvm::Instruction &one;
  llvm::IRBuilder<> b;
  const bool converts;
};

bool touchesNarrow(const llvm::Instruction &one) {
  return isNarrow(one.getType()) ||
         llvm::any_of(one.operands(), [](const llvm::Use &operand) { return isNarrow(operand->getType()); });
}

} // namespace

void computeNarrowFloatsInSingle(llvm::Module &module, bool converts) {
  for (llvm::Function &function : module)
    for (llvm::Instruction &one : llvm::make_early_inc_range(llvm::instructions(function)))
      if (touchesNarrow(one))
        if (llvm::Value *wide = InSingle(one, converts).result()) {
          one.replaceAllUsesWith(wide);
          one.eraseFromParent();
        }
}

} // namespace cleave::codegen
