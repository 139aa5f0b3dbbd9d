// Contractions laid out as matrix products over strides, executed by plain loops, against the sum over all indices.
#include "compiler/codegen/commands/contract_layout.h"
#include <gtest/gtest.h>
#include <numeric>
#include <random>

namespace cleave::codegen {
namespace {

using Letters = std::vector<int64_t>;

std::vector<double> randomTensor(int64_t elements, std::mt19937 &random) {
  std::vector<double> values(elements);
  for (double &value : values) value = double(int(random() % 17)) - 8;
  return values;
}

int64_t elementsOf(const std::vector<int64_t> &sizes, const Letters &letters) {
  int64_t product = 1;
  for (int64_t letter : letters) product *= sizes[letter];
  return product;
}

// Calls visit(index of every letter) for all combinations.
template <typename Visit> void forAll(const std::vector<int64_t> &sizes, Visit visit) {
  std::vector<int64_t> index(sizes.size(), 0);
  while (true) {
    visit(index);
    size_t d = sizes.size();
    while (d > 0 && ++index[d - 1] == sizes[d - 1]) index[--d] = 0;
    if (d == 0) return;
  }
}

int64_t at(const std::vector<int64_t> &index, const IndexStrides &strides) {
  int64_t offset = 0;
  for (size_t i = 0; i < index.size(); ++i) offset += index[i] * strides[i].value_or(0);
  return offset;
}

// The tensor's elements copied into another order of its letters.
std::vector<double> copied(const std::vector<int64_t> &sizes, const std::vector<double> &values,
                           const IndexStrides &from, const IndexOrder &order) {
  std::vector<double> result(elementsOf(sizes, order));
  IndexStrides to = denseStrides(sizes, order);
  forAll(sizes, [&](const std::vector<int64_t> &index) { result[at(index, to)] = values[at(index, from)]; });
  return result;
}

std::vector<double> multiply(const ContractLayout &layout, const std::vector<double> &lhs,
                             const std::vector<double> &rhs, int64_t outElements) {
  std::vector<double> out(outElements, 0);
  std::vector<int64_t> sizes = layout.batch;
  sizes.insert(sizes.end(), {layout.m, layout.n, layout.k});
  size_t batch = layout.batch.size();
  forAll(sizes, [&](const std::vector<int64_t> &index) {
    int64_t l = 0, r = 0, o = 0;
    for (size_t i = 0; i < batch; ++i)
      l += index[i] * layout.lhsStrides[i], r += index[i] * layout.rhsStrides[i], o += index[i] * layout.outStrides[i];
    int64_t m = index[batch], n = index[batch + 1], k = index[batch + 2];
    l += m * layout.lhsStrides[batch] + k * layout.lhsStrides[batch + 1];
    r += k * layout.rhsStrides[batch] + n * layout.rhsStrides[batch + 1];
    o += m * layout.outStrides[batch] + n * layout.outStrides[batch + 1];
    out.at(o) += lhs.at(l) * rhs.at(r);
  });
  return out;
}

ContractLayout expectProduct(const std::vector<int64_t> &sizes, const Letters &lhs, const Letters &rhs,
                             const Letters &out, std::mt19937 &random, int64_t alignment = 0) {
  ContractIndices contraction{sizes, denseStrides(sizes, lhs), denseStrides(sizes, rhs), denseStrides(sizes, out),
                              alignment};
  auto a = randomTensor(elementsOf(sizes, lhs), random), b = randomTensor(elementsOf(sizes, rhs), random);
  std::vector<double> expected(elementsOf(sizes, out), 0);
  forAll(sizes, [&](const std::vector<int64_t> &index) {
    expected[at(index, contraction.out)] += a[at(index, contraction.lhs)] * b[at(index, contraction.rhs)];
  });

  ContractLayout layout = chooseContractLayout(contraction);
  if (layout.copyLhs) a = copied(sizes, a, contraction.lhs, *layout.copyLhs);
  if (layout.copyRhs) b = copied(sizes, b, contraction.rhs, *layout.copyRhs);
  if (layout.swapped) std::swap(a, b);
  auto product = multiply(layout, a, b, expected.size());
  if (layout.copyOut) {
    IndexStrides from = denseStrides(sizes, *layout.copyOut);
    std::vector<double> result(expected.size());
    forAll(sizes, [&](const std::vector<int64_t> &index) {
      // Contracted letters do not move the result.
      result[at(index, contraction.out)] = product[at(index, from)];
    });
    product = result;
  }
  EXPECT_EQ(product, expected);
  // The form that matrix product libraries read well: a contiguous dimension in each matrix, rows of the result
  // contiguous.
  size_t batch = layout.batch.size();
  EXPECT_TRUE(layout.lhsStrides[batch] == 1 || layout.lhsStrides[batch + 1] == 1);
  EXPECT_TRUE(layout.rhsStrides[batch] == 1 || layout.rhsStrides[batch + 1] == 1);
  EXPECT_EQ(layout.outStrides[batch + 1], 1);
  return layout;
}

TEST(ContractLayout, MatrixProductCollapsesItsRows) {
  std::vector<int64_t> sizes{8, 16, 64, 256};
  ContractIndices c{sizes, denseStrides(sizes, {0, 1, 2}), denseStrides(sizes, {2, 3}), denseStrides(sizes, {0, 1, 3})};
  ContractLayout layout = chooseContractLayout(c);
  EXPECT_TRUE(layout.batch.empty());
  EXPECT_EQ(layout.m, 128);
  EXPECT_EQ(layout.n, 256);
  EXPECT_EQ(layout.k, 64);
  EXPECT_FALSE(layout.copyLhs || layout.copyRhs || layout.copyOut || layout.swapped);
}

TEST(ContractLayout, AttentionNeedsNoCopies) {
  std::vector<int64_t> sizes{2, 12, 128, 128, 64}; // b h s t d
  auto copies = [&](const Letters &lhs, const Letters &rhs, const Letters &out) {
    ContractIndices c{sizes, denseStrides(sizes, lhs), denseStrides(sizes, rhs), denseStrides(sizes, out)};
    ContractLayout layout = chooseContractLayout(c);
    return layout.copyLhs.has_value() + layout.copyRhs.has_value() + layout.copyOut.has_value();
  };
  EXPECT_EQ(copies({0, 2, 1, 4}, {0, 3, 1, 4}, {0, 1, 2, 3}), 0); // q k
  EXPECT_EQ(copies({0, 1, 2, 3}, {0, 3, 1, 4}, {0, 2, 1, 4}), 0); // scores v
  EXPECT_EQ(copies({0, 1, 2, 3}, {0, 2, 1, 4}, {0, 3, 1, 4}), 0); // gradient of k
}

TEST(ContractLayout, SpecialShapes) {
  std::mt19937 random(3);
  expectProduct({5}, {0}, {0}, {}, random);                 // dot product
  expectProduct({5, 7}, {0}, {1}, {0, 1}, random);          // outer product
  expectProduct({5, 7}, {0}, {1}, {1, 0}, random);          // its transpose
  expectProduct({5, 7}, {0, 1}, {1}, {0}, random);          // matrix times vector
  expectProduct({5, 7}, {1}, {1, 0}, {0}, random);          // vector times matrix
  expectProduct({5, 7}, {0, 1}, {0, 1}, {0, 1}, random);    // only batch dimensions
  expectProduct({1, 1, 1}, {0, 1}, {1, 2}, {0, 2}, random); // ones
  expectProduct({3, 1, 4, 1}, {0, 1, 3}, {3, 2}, {2, 1, 0}, random);
  expectProduct({}, {}, {}, {}, random); // scalars
}

// Products of 8 bits on GPUs: k innermost in both operands, everything else at multiples of 16.
TEST(ContractLayout, KInnermost) {
  auto laid = [](Letters lhs, Letters rhs, Letters out, std::vector<int64_t> sizes) {
    ContractIndices indices{.sizes = sizes};
    indices.lhs = denseStrides(sizes, lhs), indices.rhs = denseStrides(sizes, rhs),
    indices.out = denseStrides(sizes, out);
    indices.alignment = 16;
    return chooseContractLayout(indices);
  };
  const std::vector<int64_t> sizes{64, 48, 32}; // m n k
  ContractLayout both = laid({0, 2}, {1, 2}, {0, 1}, sizes);
  EXPECT_FALSE(both.copyLhs || both.copyRhs);
  ContractLayout forward = laid({0, 2}, {2, 1}, {0, 1}, sizes); // of a weight [in, out]
  EXPECT_FALSE(forward.copyLhs);
  ASSERT_TRUE(forward.copyRhs);
  EXPECT_EQ(*forward.copyRhs, (IndexOrder{1, 2}));
  ContractLayout weight = laid({2, 0}, {2, 1}, {0, 1}, sizes); // a weight's gradient sums over rows
  EXPECT_TRUE(weight.copyLhs && weight.copyRhs);
  for (const ContractLayout &layout : {both, forward, weight}) {
    EXPECT_EQ(layout.lhsStrides, (std::vector<int64_t>{32, 1}));
    EXPECT_EQ(layout.rhsStrides, (std::vector<int64_t>{1, 32}));
  }
  ContractIndices odd{.sizes = sizes, .alignment = 16, .copiesLhs = true}; // begins where it must not
  odd.lhs = denseStrides(sizes, {0, 2}), odd.rhs = denseStrides(sizes, {1, 2}), odd.out = denseStrides(sizes, {0, 1});
  EXPECT_TRUE(chooseContractLayout(odd).copyLhs);
  odd.copiesLhs = false;
  odd.lhs[0] = 40; // rows of a wider tensor
  EXPECT_TRUE(chooseContractLayout(odd).copyLhs);
}

// n is 2 x 40: a loop over 2 would leave matrices of 40 columns, so the result is copied.
TEST(ContractLayout, AlignedSizesOfTheMatricesThemselves) {
  const std::vector<int64_t> sizes{8, 16, 32, 2, 40}; // b s k h d
  ContractIndices einsum{.sizes = sizes, .alignment = 16};
  einsum.lhs = denseStrides(sizes, {0, 1, 2}), einsum.rhs = denseStrides(sizes, {2, 3, 4}),
  einsum.out = denseStrides(sizes, {0, 3, 1, 4});
  ContractLayout layout = chooseContractLayout(einsum);
  EXPECT_EQ(std::vector({layout.m, layout.n, layout.k}), (std::vector<int64_t>{128, 80, 32}));
  EXPECT_TRUE(layout.batch.empty() && layout.copyOut);
  einsum.alignment = 0;
  EXPECT_FALSE(chooseContractLayout(einsum).copyOut);
}

// Groups of two letters whose sizes are multiples of 4 together, in any order of letters.
TEST(ContractLayout, RandomAlignedContractions) {
  std::mt19937 random(17);
  const std::vector<std::pair<int64_t, int64_t>> pairs{{2, 2}, {1, 4}, {4, 1}, {4, 2}, {2, 6}, {3, 4}};
  for (int round = 0; round < 1000; ++round) {
    std::vector<int64_t> sizes{1 + int64_t(random() % 3)}; // of the batch
    for (int group = 0; group < 3; ++group) {              // m, n, k
      auto [first, second] = pairs[random() % pairs.size()];
      sizes.insert(sizes.end(), {first, second});
    }
    Letters lhs{0, 1, 2, 5, 6}, rhs{0, 3, 4, 5, 6}, out{0, 1, 2, 3, 4};
    for (Letters *letters : {&lhs, &rhs, &out}) std::shuffle(letters->begin(), letters->end(), random);
    ContractLayout layout = expectProduct(sizes, lhs, rhs, out, random, /*alignment=*/4);
    const size_t batch = layout.batch.size();
    EXPECT_EQ(layout.m % 4 + layout.n % 4 + layout.k % 4, 0);
    EXPECT_TRUE(layout.lhsStrides[batch + 1] == 1 && layout.rhsStrides[batch] == 1);
    for (size_t i = 0; i <= batch; ++i)
      EXPECT_EQ(layout.lhsStrides[i] % 4 + layout.rhsStrides[i == batch ? batch + 1 : i] % 4, 0);
    if (HasFailure()) {
      ADD_FAILURE() << "round " << round;
      return;
    }
  }
}

TEST(ContractLayout, RandomContractions) {
  std::mt19937 random(11);
  for (int round = 0; round < 3000; ++round) {
    int64_t count = 1 + random() % 6;
    std::vector<int64_t> sizes;
    Letters lhs, rhs, out;
    for (int64_t letter = 0; letter < count; ++letter) {
      sizes.push_back(1 + random() % 4);
      int kind = random() % 4; // batch, m, n, k
      if (kind != 2) lhs.push_back(letter);
      if (kind != 1) rhs.push_back(letter);
      if (kind != 3) out.push_back(letter);
    }
    for (Letters *letters : {&lhs, &rhs, &out}) std::shuffle(letters->begin(), letters->end(), random);
    expectProduct(sizes, lhs, rhs, out, random);
    if (HasFailure()) {
      ADD_FAILURE() << "round " << round;
      return;
    }
  }
}

} // namespace
} // namespace cleave::codegen
