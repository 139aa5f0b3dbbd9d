#include "compiler/training/recipe_option.h"

// The option parser takes the outer braces of a flow map away.
bool llvm::cl::parser<cleave::recipe::Recipe>::parse(Option &option, StringRef, StringRef text,
                                                     cleave::recipe::Recipe &recipe) {
  const bool isWhole = text.empty() || text.contains('\n') || (text.starts_with("{") && text.ends_with("}"));
  auto parsed = cleave::recipe::parseRecipeText(isWhole ? text.str() : ("{" + text + "}").str());
  if (!parsed) return option.error(parsed.status().message());
  recipe = std::move(*parsed);
  return false;
}
