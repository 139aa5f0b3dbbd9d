// Which engine a convolution gets, by the order of its tensors; by the fake cuDNN's word and, where it is installed, by
// the real one's.
#include "test/unit/cuda/engines.h"
#include <fmt/format.h>
#include <gmock/gmock.h>

namespace cleave::runtime::test {
namespace {

struct Layer {
  int64_t samples, channels, size, outputs, kernel, stride;
};

plan::Command commandOf(plan::Convolution::Pass pass, const Layer &layer, bool isLast) {
  plan::Command command;
  command.set_name("conv");
  plan::Convolution &c = *command.mutable_convolution();
  c.set_pass(pass), c.set_groups(1), c.set_channels_last(isLast), c.set_weight_channels_last(isLast);
  const int64_t pad = layer.kernel / 2, reduced = (layer.size + 2 * pad - layer.kernel) / layer.stride + 1;
  int64_t offset = 0;
  auto buffer = [&](plan::Buffer &made, int64_t first, int64_t channels, int64_t size) {
    made.set_dtype(plan::BF16), made.set_offset(offset);
    made.add_shape(first);
    if (!isLast) made.add_shape(channels);
    made.add_shape(size), made.add_shape(size);
    if (isLast) made.add_shape(channels);
    offset += 2 * first * channels * size * size;
  };
  buffer(*c.mutable_input(), layer.samples, layer.channels, layer.size);
  buffer(*c.mutable_weight(), layer.outputs, layer.channels, layer.kernel);
  buffer(*c.mutable_output(), layer.samples, layer.outputs, reduced);
  for (int d = 0; d < 2; ++d)
    c.add_strides(layer.stride), c.add_dilations(1), c.add_pads_begin(pad), c.add_pads_end(pad);
  return command;
}

constexpr plan::Convolution::Pass passes[] = {plan::Convolution::FORWARD, plan::Convolution::GRAD_INPUT,
                                              plan::Convolution::GRAD_WEIGHT};

TEST(CudaConvolution, TensorCoresThatDoNotFitAreMissedWithAWarning) {
  FakeGpu gpu;
  Engines engines;
  const Layer large{256, 64, 56, 256, 1, 1}, small{2, 64, 56, 256, 1, 1};
  for (plan::Convolution::Pass pass : passes) {
    EXPECT_THAT(engines.warningOf(commandOf(pass, large, /*isLast=*/false)),
                testing::AllOf(testing::HasSubstr("no engine with tensor cores"), testing::HasSubstr("256 MiB")));
    EXPECT_EQ(engines.warningOf(commandOf(pass, large, /*isLast=*/true)), "");
    EXPECT_EQ(engines.warningOf(commandOf(pass, small, /*isLast=*/false)), "");
  }
}

// The distinct convolutions of ResNet-50, of 256 images.
TEST(CudaConvolution, RealEnginesHaveTensorCores) {
  if (askedElsewhere("CudaConvolution.RealEnginesHaveTensorCores")) return;
  FakeGpu gpu;
  Engines engines;
  const Layer layers[] = {
      {256, 3, 224, 64, 7, 2},     {256, 64, 56, 64, 1, 1},    {256, 64, 56, 64, 3, 1},    {256, 64, 56, 256, 1, 1},
      {256, 256, 56, 64, 1, 1},    {256, 256, 56, 128, 1, 1},  {256, 128, 56, 128, 3, 2},  {256, 128, 28, 512, 1, 1},
      {256, 256, 56, 512, 1, 2},   {256, 512, 28, 128, 1, 1},  {256, 128, 28, 128, 3, 1},  {256, 512, 28, 256, 1, 1},
      {256, 256, 28, 256, 3, 2},   {256, 256, 14, 1024, 1, 1}, {256, 512, 28, 1024, 1, 2}, {256, 1024, 14, 256, 1, 1},
      {256, 256, 14, 256, 3, 1},   {256, 1024, 14, 512, 1, 1}, {256, 512, 14, 512, 3, 2},  {256, 512, 7, 2048, 1, 1},
      {256, 1024, 14, 2048, 1, 2}, {256, 2048, 7, 512, 1, 1},  {256, 512, 7, 512, 3, 1}};
  int missed = 0;
  for (const Layer &layer : layers)
    for (plan::Convolution::Pass pass : passes) {
      if (pass == plan::Convolution::GRAD_INPUT && layer.channels == 3) continue; // of images
      EXPECT_EQ(engines.warningOf(commandOf(pass, layer, /*isLast=*/true)), "")
          << plan::Convolution::Pass_Name(pass)
          << fmt::format(" {}x{}, {} to {}, of {} pixels", layer.kernel, layer.kernel, layer.channels, layer.outputs,
                         layer.size);
      missed += !Engines().warningOf(commandOf(pass, layer, /*isLast=*/false)).empty();
    }
  EXPECT_GT(engines.workspaceBytes(), 0);
  EXPECT_GT(missed, 0) << "with the channels first, some want more workspace than there is";
}

} // namespace
} // namespace cleave::runtime::test
