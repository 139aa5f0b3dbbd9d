#include "runtime/check/proof/memory.h"
#include "runtime/check/proof/operations.h"
#include <gtest/gtest.h>

namespace cleave::proof {
namespace {

class Memories : public testing::Test {
protected:
  Term x(const std::string &name, std::vector<int64_t> shape) {
    return store.leaf(name, Operations(store).dimensions(shape));
  }
  std::string whyNot(const Place &place, const std::vector<int64_t> &shape) {
    try {
      (void)memory.read(place, shape);
    } catch (const Unproved &gap) {
      return gap.why;
    }
    return "";
  }
  Store store;
  Memory memory{store};
};

TEST_F(Memories, readsInAnotherShape) {
  memory.write({false, 64, plan::F32}, {4, 16}, x("x", {4, 16}));
  EXPECT_EQ(memory.read({false, 64, plan::F32}, {4, 16}), x("x", {4, 16}));
  const Index d = store.dimension(0, 64);
  EXPECT_EQ(memory.read({false, 64, plan::F32}, {64}),
            store.leaf("x", {store.quotient(d, 16), store.remainder(d, 16)}));
}

TEST_F(Memories, readsThroughStrides) {
  memory.write({false, 0, plan::F32}, {4, 16}, x("x", {4, 16}));
  EXPECT_EQ(memory.read({false, 0, plan::F32}, store.constant(0), {16, 4}, {1, 16}),
            store.leaf("x", {store.dimension(1, 4), store.dimension(0, 16)}));
}

TEST_F(Memories, theNewestWriteCounts) {
  memory.write({false, 0, plan::F32}, {8}, x("old", {8}));
  memory.write({false, 16, plan::F32}, {2}, x("new", {2}));
  EXPECT_EQ(memory.read({false, 16, plan::F32}, {2}), x("new", {2}));
  EXPECT_EQ(memory.read({false, 0, plan::F32}, {4}), store.leaf("old", {store.dimension(0, 4)}));
  EXPECT_NE(memory.read({false, 0, plan::F32}, {8}), x("old", {8}));
}

TEST_F(Memories, columnsSideBySideAreOneTensor) {
  memory.write({false, 0, plan::F32}, {4, 2}, {5, 1}, x("a", {4, 2}));
  memory.write({false, 8, plan::F32}, {4, 3}, {5, 1}, x("b", {4, 3}));
  const Index row = store.dimension(0, 4), column = store.dimension(1, 5);
  const Term whole = store.sum(
      store.product({store.inside(column, 0, 2), store.leaf("a", {row, column})}),
      store.product({store.inside(column, 2, 5), store.leaf("b", {row, store.subtract(column, store.constant(2))})}));
  EXPECT_EQ(memory.read({false, 0, plan::F32}, {4, 5}), whole);
}

TEST_F(Memories, eachDeviceReadsAnotherWrite) {
  memory.write({false, 0, plan::F32}, {3}, x("a", {3}));
  memory.write({false, 12, plan::F32}, {3}, x("b", {3}));
  auto at = [&](int64_t devices) { return store.of(store.variable(Variable::Coordinate, 0, devices)); };
  const Term found = memory.read({false, 0, plan::F32}, store.scale(at(2), 3), {3}, {1});
  EXPECT_EQ(found, store.sum(store.product({store.inside(at(2), 0, 1), x("a", {3})}),
                             store.product({store.inside(at(2), 1, 2), x("b", {3})})));
  EXPECT_THROW((void)memory.read({false, 0, plan::F32}, at(8), {1}, {1}), Unproved); // beyond what is written
}

// 8 devices of three elements each read where one write of ten follows another of 14.
TEST_F(Memories, theWriteThatADeviceReadsMayChangeWithinItsPart) {
  memory.write({false, 0, plan::F32}, {10}, x("a", {10}));
  memory.write({false, 40, plan::F32}, {14}, x("b", {14}));
  const Index device = store.of(store.variable(Variable::Coordinate, 0, 8));
  const Term found = memory.read({false, 0, plan::F32}, store.scale(device, 3), {3}, {1});
  const Index at = store.add(store.scale(device, 3), store.dimension(0, 3));
  auto leaf = [&](const std::string &name, int64_t begin) {
    return store.leaf(name, {store.subtract(at, store.constant(begin))});
  };
  EXPECT_EQ(found, store.sum(store.product({store.inside(at, 0, 10), leaf("a", 0)}),
                             store.product({store.inside(at, 10, 24), leaf("b", 10)})));
}

// Four gates of 24 columns side by side; each of two devices reads two of them.
TEST_F(Memories, eachDeviceReadsOtherColumns) {
  for (int64_t gate = 0; gate < 4; ++gate)
    memory.write({false, 96 * gate, plan::F32}, {8, 24}, {96, 1}, x("gate " + std::to_string(gate), {8, 24}));
  const Index device = store.of(store.variable(Variable::Coordinate, 0, 2));
  const Term found = memory.read({false, 0, plan::F32}, store.scale(device, 48), {8, 48}, {96, 1});
  for (int64_t at = 0; at < 2; ++at)
    for (int64_t column : {0, 23, 24, 47}) {
      const Replacement here = {{store.variable(Variable::Coordinate, 0, 2), store.constant(at)},
                                {store.variable(Variable::Dimension, 1, 48), store.constant(column)}};
      EXPECT_EQ(store.replace(found, here), store.leaf("gate " + std::to_string(2 * at + column / 24),
                                                       {store.dimension(0, 8), store.constant(column % 24)}));
    }
}

TEST_F(Memories, aRowHasTheShapeOfItsWrite) {
  memory.write({false, 64, plan::F32}, {2, 3, 4}, x("x", {2, 3, 4}));
  memory.write({false, 256, plan::F32}, {3, 4}, {1, 3}, x("turned", {3, 4}));
  EXPECT_EQ(memory.shapeOf({false, 64, plan::F32}, 24), (std::vector<int64_t>{2, 3, 4}));
  EXPECT_EQ(memory.shapeOf({false, 256, plan::F32}, 12), (std::vector<int64_t>{4, 3}));
  EXPECT_EQ(memory.shapeOf({false, 64, plan::F32}, 12), (std::vector<int64_t>{12})); // a part
  EXPECT_EQ(memory.shapeOf({false, 0, plan::F32}, 4), (std::vector<int64_t>{4}));    // nobody wrote it
}

TEST_F(Memories, refusesWhatNobodyWrote) {
  EXPECT_EQ(whyNot({false, 0, plan::F32}, {4}), "it reads memory that nobody wrote");
  memory.write({false, 0, plan::F32}, {4}, x("x", {4}));
  EXPECT_EQ(whyNot({false, 0, plan::F32}, {5}), "it reads memory that nobody wrote");
  EXPECT_EQ(whyNot({true, 0, plan::F32}, {4}), "it reads memory that nobody wrote");
  EXPECT_EQ(whyNot({false, 0, plan::I32}, {4}), "it reads i32 where f32 was written");
  EXPECT_EQ(whyNot({false, 4, plan::F32}, {3}), "");
}

class Recordings : public Memories {
protected:
  Term atMicrobatch(int64_t m) { return store.leaf("x", {store.of(store.microbatch(m)), store.dimension(0, 8)}); }
  // Adds x of microbatch 1 to what lies at byte 0, by way of byte 64, and notes it.
  Effect added() {
    memory.record([&](const Cell &cell) { return memory.valueOf(cell); });
    const Term sum = store.sum(memory.read({false, 0, plan::F32}, {8}), atMicrobatch(1));
    memory.write({false, 64, plan::F32}, {8}, sum);
    memory.write({false, 0, plan::F32}, {8}, memory.read({false, 64, plan::F32}, {8}));
    return memory.recorded([](Term t) { return t; });
  }
};

TEST_F(Recordings, haveWhatWasReadAndWhatIsLeft) {
  memory.write({false, 0, plan::F32}, {8}, x("before", {8}));
  memory.write({false, 128, plan::F32}, {8}, x("elsewhere", {8}));
  const Effect effect = added();
  ASSERT_EQ(effect.needed.size(), 1U);
  EXPECT_EQ(effect.needed[0].seen, x("before", {8}));
  EXPECT_EQ(effect.left.size(), 2U);
  EXPECT_TRUE(memory.find(effect).has_value());
  memory.leave(effect.left);
  EXPECT_EQ(memory.read({false, 0, plan::F32}, {8}), store.sum(x("before", {8}), atMicrobatch(1)));
  EXPECT_EQ(memory.read({false, 128, plan::F32}, {8}), x("elsewhere", {8}));
}

TEST_F(Recordings, areOfNoUseWhereSomethingElseWasWritten) {
  memory.write({false, 0, plan::F32}, {8}, x("before", {8}));
  const Effect effect = added();
  memory.write({false, 4, plan::F32}, {2}, x("over a part", {2}));
  EXPECT_FALSE(memory.find(effect).has_value());
  memory.write({false, 0, plan::F32}, {2, 4}, x("another shape", {2, 4}));
  EXPECT_FALSE(memory.find(effect).has_value());
  memory.write({false, 0, plan::F32}, {8}, x("the same place", {8}));
  EXPECT_TRUE(memory.find(effect).has_value());
}

TEST_F(Recordings, keepTheOrderOfWritesThatOverlap) {
  memory.write({false, 0, plan::F32}, {8}, x("a", {8}));
  memory.write({false, 8, plan::F32}, {2}, x("b", {2}));
  memory.record([&](const Cell &cell) { return memory.valueOf(cell); });
  memory.write({false, 64, plan::F32}, {2}, memory.read({false, 0, plan::F32}, {2}));
  const Effect effect = memory.recorded([](Term t) { return t; });
  ASSERT_EQ(effect.needed.size(), 2U);
  EXPECT_FALSE(effect.needed[1].seen.has_value());
  EXPECT_TRUE(memory.find(effect).has_value());
  memory.write({false, 0, plan::F32}, {8}, x("a", {8})); // now over b
  EXPECT_FALSE(memory.find(effect).has_value());
}

TEST_F(Recordings, aCellAddsMicrobatchesWhenItIsRead) {
  Cell cell{.place = {false, 0, plan::F32}, .end = 32, .sizes = {8}, .strides = {1}, .variables = {}, .isDense = true};
  cell.variables = {store.variable(Variable::Dimension, 0, 8)};
  cell.value = atMicrobatch(0);
  cell.each = atMicrobatch(9);
  cell.eachFrom = store.microbatch(9);
  cell.of = {2, 1, 4};
  Term sum = store.number(0);
  for (int64_t m : {0, 1, 2, 4}) sum = store.sum(sum, atMicrobatch(m));
  EXPECT_EQ(memory.valueOf(cell), sum);
}

} // namespace
} // namespace cleave::proof
