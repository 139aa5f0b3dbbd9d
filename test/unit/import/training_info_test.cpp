// training_info that differs in one thing from the recorded ones, which test/cli/training-info.test trains: what does
// not fit is named, and what a graph may write in several ways is read in each.
#include "compiler/import/import.h"
#include "compiler/import/model_file.h"
#include "gmock/gmock.h"
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <unistd.h>

namespace cleave::import_ {
namespace {

using ::onnx::GraphProto;
using ::onnx::NodeProto;
using testing::ElementsAre;
using testing::HasSubstr;

struct Edit {
  GraphProto &algorithm() { return *info().mutable_algorithm(); }
  ::onnx::TrainingInfoProto &info() { return *model.mutable_training_info(0); }
  NodeProto &node(const std::string &name) {
    for (NodeProto &node : *algorithm().mutable_node())
      if (node.name() == name) return node;
    throw std::runtime_error("no node " + name);
  }
  ::onnx::TensorProto &tensor(const std::string &name) {
    for (::onnx::TensorProto &tensor : *algorithm().mutable_initializer())
      if (tensor.name() == name) return tensor;
    throw std::runtime_error("no tensor " + name);
  }
  void number(const std::string &name, int64_t value) { tensor(name).set_raw_data(&value, sizeof value); }
  void attribute(const std::string &of, const std::string &name, float value) {
    for (::onnx::AttributeProto &attribute : *node(of).mutable_attribute())
      if (attribute.name() == name) return attribute.set_f(value);
    ::onnx::AttributeProto &added = *node(of).add_attribute();
    added.set_name(name);
    added.set_type(::onnx::AttributeProto::FLOAT);
    added.set_f(value);
  }
  ::onnx::ModelProto model;
};

recipe::ModelTraining edited(const std::string &name, const std::function<void(Edit &)> &change) {
  Edit edit;
  std::ifstream file(GOLDEN "/training_info/" + name + ".onnx", std::ios::binary);
  EXPECT_TRUE(edit.model.ParseFromIstream(&file));
  change(edit);
  auto path = std::filesystem::temp_directory_path() / ("cleave-training-info-" + std::to_string(getpid()) + ".onnx");
  {
    std::ofstream out(path, std::ios::binary);
    edit.model.SerializeToOstream(&out);
  }
  auto training = trainingOf(path.string());
  std::filesystem::remove(path);
  EXPECT_TRUE(training && *training);
  return **training;
}
std::string fault(const std::string &name, const std::function<void(Edit &)> &change) {
  recipe::ModelTraining training = edited(name, change);
  EXPECT_TRUE(training.fault.empty() != training.optimizerFault.empty());
  EXPECT_FALSE(training.optimizer);
  return training.fault + training.optimizerFault;
}

TEST(TrainingInfo, TheUpdateCountSaysWhatIsCorrected) {
  using recipe::BiasCorrection;
  auto correction = [](const std::function<void(Edit &)> &change) {
    recipe::ModelTraining training = edited("adam", change);
    EXPECT_EQ(training.optimizerFault, "");
    return training.optimizer ? training.optimizer->biasCorrection : BiasCorrection::FromOne;
  };
  EXPECT_EQ(correction([](Edit &) {}), BiasCorrection::FromZero);
  EXPECT_EQ(correction([](Edit &edit) { edit.number("T", 1); }), BiasCorrection::FromOne);
  EXPECT_EQ(correction([](Edit &edit) { // T stays 0
              auto &bindings = *edit.info().mutable_update_binding();
              for (int i = 0; i < bindings.size(); ++i)
                if (bindings[i].key() == "T") return bindings.DeleteSubrange(i, 1);
            }),
            BiasCorrection::None);
  EXPECT_THAT(fault("adam", [](Edit &edit) { edit.number("T", 2); }),
              HasSubstr("node 'Adam.1' (Adam) has an update count that begins at 2"));
  EXPECT_THAT(fault("adam", [](Edit &edit) { edit.number("one", 2); }), HasSubstr("does not count by 1"));
  EXPECT_THAT(fault("momentum", [](Edit &edit) { edit.number("T", 1); }),
              HasSubstr("the first gradient would be weighed"));
  EXPECT_THAT(fault("adagrad", [](Edit &edit) { edit.number("T", 1); }), HasSubstr("begins at 1"));
}

TEST(TrainingInfo, ParametersMayDecayOrNot) {
  recipe::ModelTraining training = edited("adam_post", [](Edit &) {});
  EXPECT_EQ(training.optimizer->kind, recipe::OptimizerKind::AdamW);
  EXPECT_THAT(training.optimizer->noDecay, ElementsAre("=fc1.bias"));
  EXPECT_THAT(training.trained, ElementsAre("fc1.bias", "fc1.weight", "fc2.weight"));
  EXPECT_DOUBLE_EQ(training.stepDecay, 0.01);
  EXPECT_EQ(training.optimizer->weightDecay, 0);
  EXPECT_THAT(fault("adam_post", [](Edit &edit) { edit.attribute("Adam.2", "norm_coefficient_post", 0.5); }),
              HasSubstr("parameters decay by"));
  EXPECT_THAT(fault("adam_post", [](Edit &edit) { edit.attribute("Adam.2", "epsilon", 0.5); }),
              HasSubstr("node 'Adam.2' (Adam) updates 'fc1.bias' otherwise than the others"));
}

// Whichever of the nodes comes first.
TEST(TrainingInfo, ParametersWithoutDecayMayComeFirst) {
  recipe::ModelTraining training = edited("adam_post", [](Edit &edit) {
    auto &nodes = *edit.algorithm().mutable_node();
    nodes.SwapElements(nodes.size() - 1, nodes.size() - 2);
  });
  EXPECT_EQ(training.optimizerFault, "");
  ASSERT_TRUE(training.optimizer);
  EXPECT_EQ(training.optimizer->kind, recipe::OptimizerKind::AdamW);
  EXPECT_THAT(training.optimizer->noDecay, ElementsAre("=fc1.bias"));
}

TEST(TrainingInfo, FaultsNameTheNode) {
  EXPECT_THAT(fault("adam", [](Edit &edit) { *edit.model.add_training_info() = edit.info(); }),
              HasSubstr("has 2 training_info; one can be taken"));
  EXPECT_THAT(fault("adam", [](Edit &edit) { edit.node("gradient").set_op_type("Other"); }),
              HasSubstr("the algorithm has no Gradient"));
  EXPECT_THAT(fault("adam", [](Edit &edit) { *edit.algorithm().add_node() = NodeProto(edit.node("gradient")); }),
              HasSubstr("node 'gradient' (Gradient) is the second Gradient"));
  EXPECT_THAT(fault("adam",
                    [](Edit &edit) {
                      for (auto &attribute : *edit.node("gradient").mutable_attribute())
                        if (attribute.name() == "xs") attribute.set_strings(0, "t");
                    }),
              HasSubstr("node 'gradient' (Gradient) is with respect to 't', which node 'tanh' (Tanh) computes"));
  EXPECT_THAT(
      fault("adam",
            [](Edit &edit) {
              NodeProto &clip = *edit.algorithm().add_node();
              clip.set_name("clip");
              clip.set_op_type("Clip");
              clip.add_input("d/fc1.bias");
              clip.add_output("clipped");
              edit.node("Adam.1").set_input(7, "clipped");
            }),
      HasSubstr("node 'Adam.1' (Adam) updates 'fc1.bias' by 'clipped', which is not its gradient but node 'clip' "
                "(Clip)'s"));
  EXPECT_THAT(fault("sgd", [](Edit &edit) { edit.node("scale/fc1.bias").set_op_type("Div"); }),
              HasSubstr("node 'step/fc1.bias' (Sub) subtracts something else"));
  EXPECT_THAT(fault("adam", [](Edit &edit) { edit.info().mutable_update_binding()->RemoveLast(); }),
              HasSubstr("which no update_binding puts there"));
  EXPECT_THAT(fault("adam",
                    [](Edit &edit) {
                      std::string ones(9 * 4, 1);
                      edit.tensor("V/fc1.bias").set_raw_data(ones);
                    }),
              HasSubstr("node 'Adam.1' (Adam) begins with a state 'V/fc1.bias' other than zeros"));
  EXPECT_THAT(fault("adam",
                    [](Edit &edit) {
                      NodeProto &negated = *edit.algorithm().add_node();
                      negated.set_name("sign");
                      negated.set_op_type("Neg");
                      negated.add_input("one");
                      negated.add_output("minus");
                      auto &binding = *edit.info().add_update_binding();
                      binding.set_key("one");
                      binding.set_value("minus");
                    }),
              HasSubstr("node 'sign' (Neg) updates 'one', which is none that is known of an optimizer"));
  EXPECT_THAT(fault("adam", [](Edit &edit) { edit.node("Adam.1").mutable_input()->RemoveLast(); }),
              HasSubstr("has another number of inputs or outputs"));
}

// As a recipe's would be.
TEST(TrainingInfo, NumbersThatCannotBeAreNamed) {
  auto says = [](const std::string &node, const std::string &what) {
    return HasSubstr("node '" + node + " has a number that cannot be: " + what);
  };
  auto changed = [](const std::string &model, const std::string &node, const std::string &name, float value) {
    return fault(model, [&](Edit &edit) { edit.attribute(node, name, value); });
  };
  EXPECT_THAT(changed("adam", "Adam.1", "alpha", 1), says("Adam.1' (Adam)", "'betas' must be at least 0 and below 1"));
  EXPECT_THAT(changed("adam", "Adam.1", "beta", -0.5F), HasSubstr("below 1, is -0.5"));
  EXPECT_THAT(changed("adam", "Adam.1", "epsilon", -1), says("Adam.1' (Adam)", "'eps' must be at least 0, is -1"));
  EXPECT_THAT(changed("adam", "Adam.1", "epsilon", std::nanf("")), HasSubstr("'eps' must be a number, is nan"));
  EXPECT_THAT(changed("adam", "Adam.1", "norm_coefficient", -1), HasSubstr("'norm_coefficient' must be at least 0"));
  EXPECT_THAT(changed("adam_post", "Adam.1", "norm_coefficient_post", -1), HasSubstr("'norm_coefficient' must be at"));
  EXPECT_THAT(changed("momentum", "Momentum.1", "alpha", 1), HasSubstr("'momentum' must be at least 0 and below 1"));
  EXPECT_THAT(changed("momentum", "Momentum.1", "beta", 3), HasSubstr("'dampening' must be at least 0 and at most 1"));
  EXPECT_THAT(changed("adagrad", "Adagrad.1", "decay_factor", -1), HasSubstr("'lr_decay' must be at least 0"));
  EXPECT_THAT(fault("adagrad",
                    [](Edit &edit) {
                      for (auto &tensor : *edit.algorithm().mutable_initializer())
                        if (tensor.name().starts_with("H/")) {
                          std::vector<float> values(tensor.raw_data().size() / 4, -1);
                          tensor.set_raw_data(values.data(), 4 * values.size());
                        }
                    }),
              HasSubstr("'initial_accumulator' must be at least 0, is -1"));
  EXPECT_THAT(fault("adam",
                    [](Edit &edit) {
                      const float rate = std::nanf("");
                      edit.tensor("R").set_raw_data(&rate, sizeof rate);
                    }),
              HasSubstr("'lr' must be a number, is nan"));
}

// With a fault in the optimizer alone, loss and parameters are still taken.
TEST(TrainingInfo, TheRecipeGivesWhatIsNotKnown) {
  recipe::ModelTraining training = edited("adam", [](Edit &edit) { edit.number("T", 2); });
  recipe::Recipe recipe = *recipe::parseRecipeText("optimizer: {kind: sgd}");
  std::vector<std::string> notes;
  ASSERT_TRUE(recipe::takeFromModel(recipe, training, notes));
  EXPECT_EQ(recipe.losses[0].outputs, std::vector<std::string>{"loss"});
  EXPECT_THAT(recipe.trainable, testing::UnorderedElementsAre("=fc1.bias", "=fc1.weight", "=fc2.bias", "=fc2.weight"));
  training = edited("adam", [](Edit &edit) { edit.node("gradient").set_op_type("Other"); });
  recipe = *recipe::parseRecipeText("optimizer: {kind: sgd}");
  EXPECT_THAT(recipe::takeFromModel(recipe, training, notes).message(), HasSubstr("give the recipe a `loss` and an"));
  recipe = *recipe::parseRecipeText("optimizer: {kind: sgd}\nloss: {kind: mse}");
  notes.clear();
  ASSERT_TRUE(recipe::takeFromModel(recipe, training, notes));
  EXPECT_THAT(notes, ElementsAre(HasSubstr("training_info is not used: ")));
}

} // namespace
} // namespace cleave::import_
