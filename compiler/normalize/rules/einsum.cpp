// Einsum: operands are contracted from left to right, an index that only one operand has is summed first.
//
//   "bij,bjk->bik"    Contract([0,1,2],[0,2,3] -> [0,1,3])
//   "...ij->...ji"    Transpose
#include "compiler/normalize/node.h"

using namespace mlir;
namespace cleave::normalize {
namespace {

struct Term {
  Value value;
  Dims letters; // characters; the ellipsis' dimensions are 256 and up, counted from the last one
};

Dims lettersOf(Node &n, StringRef text, int64_t ellipsis) {
  Dims letters;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ' ') continue;
    if (text.substr(i).starts_with("...")) {
      for (int64_t d = ellipsis; d-- > 0;) letters.push_back(256 + d);
      i += 2;
    } else if (isalpha(static_cast<unsigned char>(text[i]))) {
      letters.push_back(text[i]);
    } else {
      n.fail("its equation has the character '" + text.substr(i, 1) + "'");
    }
  }
  return letters;
}

// A repeated letter takes the diagonal: element i * (stride of both) of the merged dimension.
Term diagonal(Node &n, Term term) {
  for (size_t i = 0; i < term.letters.size(); ++i)
    for (size_t j = i + 1; j < term.letters.size(); ++j) {
      if (term.letters[i] != term.letters[j]) continue;
      int64_t rank = rankOf(term.value), size = shapeOf(term.value)[i];
      if (shapeOf(term.value)[j] != size) n.fail("a repeated index has two sizes");
      Dims perm{int64_t(i), int64_t(j)}, shape{size * size};
      for (int64_t d = 0; d < rank; ++d)
        if (d != int64_t(i) && d != int64_t(j)) perm.push_back(d);
      Value moved = n.b.transpose(term.value, perm);
      Dims letters{term.letters[i]}, indices;
      for (int64_t d : ArrayRef(perm).drop_front(2)) {
        shape.push_back(shapeOf(term.value)[d]);
        letters.push_back(term.letters[d]);
      }
      n.needsFew(size);
      for (int64_t k = 0; k < size; ++k) indices.push_back(k * (size + 1));
      return diagonal(n, {n.b.pick(n.b.reshape(moved, shape), 0, indices), letters});
    }
  return term;
}

// Sums over the letters that nobody else wants.
Term sumAway(Node &n, Term term, function_ref<bool(int64_t)> wanted) {
  Dims axes, letters;
  for (auto [d, letter] : llvm::enumerate(term.letters)) {
    if (wanted(letter))
      letters.push_back(letter);
    else
      axes.push_back(int64_t(d));
  }
  return {n.b.reduceSum(term.value, axes, false), letters};
}

// Dimensions of size 1 that the other operand has larger broadcast: they are dropped.
void dropBroadcastOnes(Node &n, Term &term, const Term &other) {
  Dims shape, letters;
  for (auto [d, letter] : llvm::enumerate(term.letters)) {
    size_t size = shapeOf(term.value)[d];
    auto found = llvm::find(other.letters, letter);
    if (size == 1 && found != other.letters.end() && shapeOf(other.value)[found - other.letters.begin()] != 1) continue;
    shape.push_back(int64_t(size));
    letters.push_back(letter);
  }
  term = {n.b.reshape(term.value, shape), letters};
}

Values einsum(Node &n) {
  std::string equation = n.text("equation", "");
  auto [left, right] = StringRef(equation).split("->");
  bool explicitResult = StringRef(equation).contains("->");
  SmallVector<StringRef> parts;
  left.split(parts, ',');
  if (parts.size() != n.inputs.size()) n.fail("its equation has " + Twine(parts.size()) + " operands");
  SmallVector<Term> terms;
  int64_t widest = 0;
  for (auto [i, part] : llvm::enumerate(parts)) {
    bool hasEllipsis = part.contains("...");
    int64_t named = int64_t(lettersOf(n, part, 0).size()), extra = rankOf(n.in(i)) - named;
    if (extra < 0 || (!hasEllipsis && extra > 0)) n.fail("operand " + Twine(i) + " does not fit '" + part + "'");
    widest = std::max(widest, extra);
    Dims letters = lettersOf(n, part, extra);
    if (int64_t(letters.size()) != rankOf(n.in(i))) n.fail("operand " + Twine(i) + " does not fit '" + part + "'");
    terms.push_back(diagonal(n, {n.in(i), letters}));
  }
  Dims result = lettersOf(n, right, widest);
  if (!explicitResult) { // the ellipsis, then letters that appear once, in alphabetical order
    std::map<int64_t, int> counts;
    for (StringRef part : parts)
      for (int64_t letter : lettersOf(n, part, 0)) ++counts[letter];
    for (int64_t d = widest; d-- > 0;) result.push_back(256 + d);
    for (auto [letter, count] : counts)
      if (count == 1) result.push_back(letter);
  }
  Term total = terms[0];
  for (size_t i = 1; i < terms.size(); ++i) {
    Term next = terms[i];
    auto later = [&](int64_t letter) {
      if (llvm::is_contained(result, letter)) return true;
      return llvm::any_of(ArrayRef(terms).drop_front(i + 1),
                          [&](const Term &t) { return llvm::is_contained(t.letters, letter); });
    };
    dropBroadcastOnes(n, total, next);
    dropBroadcastOnes(n, next, total);
    Dims nextLetters = next.letters;
    total = sumAway(n, total, [&](int64_t l) { return later(l) || llvm::is_contained(nextLetters, l); });
    next = sumAway(n, next, [&](int64_t l) { return later(l) || llvm::is_contained(total.letters, l); });
    Dims letters;
    for (int64_t l : total.letters)
      if (later(l)) letters.push_back(l);
    for (int64_t l : next.letters)
      if (later(l) && !llvm::is_contained(letters, l)) letters.push_back(l);
    if (i + 1 == terms.size() && llvm::all_of(result, [&](int64_t l) { return llvm::is_contained(letters, l); }))
      letters = result;
    total = {n.b.contract(total.value, next.value, total.letters, next.letters, letters), letters};
  }
  total = sumAway(n, total, [&](int64_t l) { return llvm::is_contained(result, l); });
  Dims perm;
  for (int64_t letter : result) {
    auto found = llvm::find(total.letters, letter);
    if (found == total.letters.end()) n.fail("its result has an index that no operand has");
    perm.push_back(found - total.letters.begin());
  }
  return {n.b.transpose(total.value, perm)};
}

} // namespace

void addEinsum(Rules &rules) { rules.add("Einsum", einsum); }

} // namespace cleave::normalize
