#include "runtime/engine/comm/cuda/reduction_kernels.h"
#include <fmt/format.h>

namespace cleave::runtime::cuda {
namespace {

struct Element {
  plan::DType dtype;
  const char *name; // in the symbol
  int bytes;
  const char *type;  // what is added up: a PTX type
  const char *load;  // from [%p] to %v
  const char *store; // from %a to [%p]
};

// %h are 16 bits, %w 32 bits.
constexpr Element elements[] = {
    {plan::F32, "f32", 4, "f32", "ld.global.f32 %v, [%p];", "st.global.f32 [%p], %a;"},
    {plan::F64, "f64", 8, "f64", "ld.global.f64 %v, [%p];", "st.global.f64 [%p], %a;"},
    {plan::I32, "i32", 4, "s32", "ld.global.s32 %v, [%p];", "st.global.s32 [%p], %a;"},
    {plan::U32, "u32", 4, "u32", "ld.global.u32 %v, [%p];", "st.global.u32 [%p], %a;"},
    {plan::I64, "i64", 8, "s64", "ld.global.s64 %v, [%p];", "st.global.s64 [%p], %a;"},
    {plan::U64, "u64", 8, "u64", "ld.global.u64 %v, [%p];", "st.global.u64 [%p], %a;"},
    {plan::I8, "i8", 1, "s32", "ld.global.s8 %v, [%p];", "st.global.s8 [%p], %a;"},
    {plan::U8, "u8", 1, "u32", "ld.global.u8 %v, [%p];", "st.global.u8 [%p], %a;"},
    {plan::BOOL, "bool", 1, "u32", "ld.global.u8 %v, [%p];", "st.global.u8 [%p], %a;"},
    {plan::F16, "f16", 2, "f32", "ld.global.b16 %h, [%p];\n  cvt.f32.f16 %v, %h;",
     "cvt.rn.f16.f32 %h, %a;\n  st.global.b16 [%p], %h;"},
    // A bf16 is the upper half of a float; to the nearest, ties to even, and a NaN stays one.
    {plan::BF16, "bf16", 2, "f32", "ld.global.u16 %w, [%p];\n  shl.b32 %w, %w, 16;\n  mov.b32 %v, %w;",
     "mov.b32 %w, %a;\n  shr.u32 %x, %w, 16;\n  and.b32 %y, %x, 1;\n  add.u32 %w, %w, %y;\n  add.u32 %w, %w, 0x7fff;\n"
     "  shr.u32 %w, %w, 16;\n  or.b32 %x, %x, 0x40;\n  setp.nan.f32 %q, %a, %a;\n  selp.b32 %w, %x, %w, %q;\n"
     "  st.global.u16 [%p], %w;"},
};

const char *suffix(plan::Collective::Reduce reduce) {
  return reduce == plan::Collective::MAX ? "max" : reduce == plan::Collective::MIN ? "min" : "sum";
}

// %a = %a and %v combined
std::string combine(const Element &element, plan::Collective::Reduce reduce) {
  std::string type = element.type;
  if (reduce == plan::Collective::SUM && element.dtype != plan::BOOL) {
    // rn: never merged with a multiplication
    return fmt::format("add{}.{} %a, %a, %v;", type[0] == 'f' ? ".rn" : "", type);
  }
  const char *compare = reduce == plan::Collective::MIN ? "lt" : "gt";
  std::string code = fmt::format("setp.{}.{} %q, %v, %a;\n  selp.{} %a, %v, %a, %q;", compare, type, type);
  if (type[0] == 'f') code += fmt::format("\n  setp.nan.{} %q, %v, %v;\n  selp.{} %a, %v, %a, %q;", type, type);
  return code;
}

} // namespace

std::string reductionName(plan::DType dtype, plan::Collective::Reduce reduce) {
  for (const Element &element : elements)
    if (element.dtype == dtype) return fmt::format("cleave_reduce_{}_{}", element.name, suffix(reduce));
  return "";
}

std::string reductionPtx() {
  std::string text = ".version 7.0\n.target sm_70\n.address_size 64\n";
  for (const Element &element : elements)
    for (plan::Collective::Reduce reduce : {plan::Collective::SUM, plan::Collective::MAX, plan::Collective::MIN})
      text += fmt::format(R"(
.visible .entry {name}(.param .u64 out, .param .u64 table, .param .u64 devices, .param .u64 row, .param .u64 pitch,
                       .param .u64 count)
{{
  .reg .pred %done, %q;
  .reg .b16 %h;
  .reg .b32 %w, %x, %y, %block, %threads, %thread, %blocks;
  .reg .b64 %out, %table, %devices, %row, %pitch, %count, %i, %step, %o, %r, %p, %t, %d;
  .reg .{type} %v, %a;
  ld.param.u64 %out, [out];
  ld.param.u64 %table, [table];
  ld.param.u64 %devices, [devices];
  ld.param.u64 %row, [row];
  ld.param.u64 %pitch, [pitch];
  ld.param.u64 %count, [count];
  mov.u32 %block, %ctaid.x;
  mov.u32 %threads, %ntid.x;
  mov.u32 %thread, %tid.x;
  mov.u32 %blocks, %nctaid.x;
  mul.wide.u32 %i, %block, %threads;
  cvt.u64.u32 %t, %thread;
  add.u64 %i, %i, %t;
  mul.wide.u32 %step, %blocks, %threads;
element:
  setp.ge.u64 %done, %i, %count;
  @%done bra end;
  div.u64 %o, %i, %row;
  mul.lo.u64 %r, %o, %row;
  sub.u64 %r, %i, %r;
  mad.lo.u64 %o, %o, %pitch, %r;
  mul.lo.u64 %o, %o, {bytes};
  ld.global.u64 %p, [%table];
  add.u64 %p, %p, %o;
  {load}
  mov.{type} %a, %v;
  mov.u64 %d, 1;
  add.u64 %t, %table, 8;
device:
  setp.ge.u64 %done, %d, %devices;
  @%done bra sum;
  ld.global.u64 %p, [%t];
  add.u64 %p, %p, %o;
  {load}
  {combine}
  add.u64 %t, %t, 8;
  add.u64 %d, %d, 1;
  bra device;
sum:
  mul.lo.u64 %p, %i, {bytes};
  add.u64 %p, %p, %out;
  {store}
  add.u64 %i, %i, %step;
  bra element;
end:
  ret;
}}
)",
                          fmt::arg("name", reductionName(element.dtype, reduce)), fmt::arg("type", element.type),
                          fmt::arg("bytes", element.bytes), fmt::arg("load", element.load),
                          fmt::arg("combine", combine(element, reduce)), fmt::arg("store", element.store));
  return text;
}

} // namespace cleave::runtime::cuda
