#include "compiler/training/parameter_groups.h"
#include <gtest/gtest.h>

namespace cleave::training {
namespace {

using Numbers = std::vector<int64_t>;

std::vector<LayerName> named(std::initializer_list<const char *> names) {
  std::vector<LayerName> all;
  for (const char *name : names) all.push_back({name, false});
  return all;
}
Numbers layers(const std::vector<LayerName> &names) {
  Result<std::vector<int64_t>> found = layersOf(names);
  EXPECT_TRUE(found) << found.status().message();
  return found ? *found : Numbers{};
}
std::string fault(std::initializer_list<const char *> names) { return layersOf(named(names)).status().message(); }

TEST(Layers, areTheNumbersOfBlocks) {
  EXPECT_EQ(layers(named({"embed.weight", "h.0.attn.w", "h.0.mlp.w", "h.1.attn.w", "norm.weight"})),
            (Numbers{0, 1, 1, 2, 3}));
  EXPECT_EQ(layers(named({"0.weight", "0.bias", "2.weight", "4.weight"})), (Numbers{1, 1, 2, 3}));
}

TEST(Layers, listsWithinBlocksDoNotCount) {
  EXPECT_EQ(layers(named({"h.0.experts.0.w", "h.0.experts.1.w", "h.0.experts.2.w", "h.1.experts.0.w", "head.0.weight",
                          "head.2.weight"})),
            (Numbers{1, 1, 1, 2, 3, 3}));
}

TEST(Layers, blocksThatDoNotTrainAreCounted) {
  EXPECT_EQ(layers(named({"embed.weight", "h.0.fc.w", "h.2.fc.w", "head.weight"})), (Numbers{0, 1, 3, 4}));
}

TEST(Layers, tiedWeightsAreEmbeddings) {
  std::vector<LayerName> names = named({"h.0.fc.w", "h.1.fc.w", "head.weight"});
  names.back().isTied = true;
  EXPECT_EQ(layers(names), (Numbers{1, 2, 0}));
}

TEST(Layers, areRefusedWhereTheyAreNotPlain) {
  EXPECT_NE(fault({"encoder.0.fc.w", "encoder.1.fc.w", "decoder.0.fc.w", "decoder.1.fc.w"})
                .find("several lists of layers: those of 'decoder.0', 'encoder.0'"),
            std::string::npos);
  EXPECT_NE(fault({"fc.weight", "head.weight"}).find("no two parameters have them"), std::string::npos);
  EXPECT_NE(fault({"onnx::MatMul_46", "h.0.fc.w", "h.1.fc.w"}).find("cannot tell the layer of 'onnx::MatMul_46'"),
            std::string::npos);
}

} // namespace
} // namespace cleave::training
