// Artifacts of onnxruntime-training that differ in one thing from the recorded ones, which test/cli/artifacts.test
// trains.
#include "compiler/import/import.h"
#include "compiler/import/whole_model.h"
#include "gmock/gmock.h"
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <unistd.h>

namespace fs = std::filesystem;

namespace cleave::import_ {
namespace {

using testing::HasSubstr;

class Artifacts : public testing::Test {
protected:
  Artifacts() : folder(fs::temp_directory_path() / ("cleave-artifacts-" + std::to_string(getpid()))) {
    fs::remove_all(folder);
    fs::copy(GOLDEN "/artifacts/mlp", folder);
  }
  ~Artifacts() override { fs::remove_all(folder); }

  void edit(const std::string &file, const std::function<void(::onnx::GraphProto &)> &change) {
    ::onnx::ModelProto model;
    std::ifstream in(folder / file, std::ios::binary);
    ASSERT_TRUE(model.ParseFromIstream(&in));
    change(*model.mutable_graph());
    std::ofstream out(folder / file, std::ios::binary);
    model.SerializeToOstream(&out);
  }
  std::string optimizerFault(const std::string &attribute, float value) {
    edit("optimizer_model.onnx", [&](::onnx::GraphProto &graph) {
      for (auto &node : *graph.mutable_node())
        for (auto &one : *node.mutable_attribute())
          if (one.name() == attribute) one.set_f(value);
    });
    auto training = trainingOf(folder.string());
    EXPECT_TRUE(training && *training && !(*training)->optimizer);
    return (*training)->optimizerFault;
  }

  fs::path folder;
};

TEST_F(Artifacts, NumbersThatCannotBeAreNamed) {
  EXPECT_THAT(optimizerFault("alpha", 1.5),
              testing::AllOf(HasSubstr((folder / "optimizer_model.onnx").string() + ": node '"),
                             HasSubstr("(AdamWOptimizer) has a number that cannot be: 'betas' must be at least 0 and "
                                       "below 1, is 1.5")));
}

// A constant of the eval model in a file of its own: `cleave export` writes to any folder.
TEST_F(Artifacts, AllDataComesIntoTheExportedModel) {
  const std::vector<float> values = {1, 2, 3, 4};
  {
    std::ofstream data(folder / "constants.bin", std::ios::binary);
    data.write(reinterpret_cast<const char *>(values.data()), 16);
  }
  auto lieThere = [](::onnx::TensorProto &tensor) {
    tensor.set_data_type(::onnx::TensorProto::FLOAT);
    tensor.add_dims(4);
    tensor.set_data_location(::onnx::TensorProto::EXTERNAL);
    auto &entry = *tensor.add_external_data();
    entry.set_key("location");
    entry.set_value("constants.bin");
  };
  edit("eval_model.onnx", [&](::onnx::GraphProto &graph) {
    ::onnx::TensorProto &tensor = *graph.add_initializer();
    tensor.set_name("scale");
    lieThere(tensor);
    ::onnx::NodeProto &node = *graph.add_node();
    node.set_op_type("Constant");
    node.add_output("unread");
    auto &value = *node.add_attribute();
    value.set_name("value");
    value.set_type(::onnx::AttributeProto::TENSOR);
    lieThere(*value.mutable_t());
  });
  Result<ModelFile> model = openModel(folder.string());
  ASSERT_TRUE(model) << model.status().message();
  Result<::onnx::ModelProto> whole = readWhole(*model);
  ASSERT_TRUE(whole) << whole.status().message();
  ASSERT_TRUE(embedData(*model, *whole));
  std::set<std::string> names;
  for (const ::onnx::TensorProto &tensor : whole->graph().initializer()) {
    EXPECT_TRUE(names.insert(tensor.name()).second) << tensor.name();
    EXPECT_NE(tensor.data_location(), ::onnx::TensorProto::EXTERNAL) << tensor.name();
  }
  EXPECT_TRUE(names.count("fc1.weight") && names.count("scale"));
  for (const ::onnx::TensorProto &tensor : whole->graph().initializer())
    if (tensor.name() == "scale") EXPECT_EQ(std::memcmp(tensor.raw_data().data(), values.data(), 16), 0);
  const ::onnx::NodeProto &last = whole->graph().node(whole->graph().node_size() - 1);
  EXPECT_EQ(last.attribute(0).t().raw_data().size(), 16u);
  for (const ::onnx::ValueInfoProto &input : whole->graph().input()) EXPECT_NE(input.name(), "fc1.weight");
  fs::remove(folder / "constants.bin");
  whole = readWhole(*model);
  EXPECT_THAT(embedData(*model, *whole).status().message(),
              testing::AllOf(HasSubstr("constants.bin: there is no such file"), HasSubstr("'scale'")));
}

} // namespace
} // namespace cleave::import_
