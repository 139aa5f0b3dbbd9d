// A recipe as an option of a pass: `recipe={loss: {kind: mse}}`, YAML text in flow or in block style.
#pragma once
#include "compiler/recipe/recipe.h"
#include "llvm/Support/CommandLine.h"

namespace llvm::cl {

template <> class parser<cleave::recipe::Recipe> : public basic_parser<cleave::recipe::Recipe> {
public:
  using basic_parser::basic_parser;
  bool parse(Option &option, StringRef name, StringRef text, cleave::recipe::Recipe &recipe);
  static void print(raw_ostream &out, const cleave::recipe::Recipe &recipe) { out << '{' << recipe.resolved() << '}'; }
  void printOptionDiff(const Option &option, const cleave::recipe::Recipe &, const OptVal &, size_t width) const {
    printOptionNoValue(option, width);
  }
};

} // namespace llvm::cl
