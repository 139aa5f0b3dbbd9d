// Recipes: read or refused with a word; what is read writes itself as a recipe that is the same.
#include "compiler/recipe/schedule.h"
#include "runtime/plan/lr_schedule.h"
#include "test/fuzz/target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  using namespace cleave;
  auto recipe = recipe::parseRecipeText(fuzz::textOf(data, size));
  if (!recipe) return fuzz::refused(recipe.status());
  const std::string text = recipe->resolved();
  auto again = recipe::parseRecipeText(text);
  fuzz::require(bool(again), "refuses its own text: " + again.status().message() + "\n" + text);
  fuzz::require(again->resolved() == text, "its own text is another recipe:\n" + text);
  for (int64_t step : {1, 10, 1000000}) (void)runtime::learningRate(recipe::planned(recipe->optimizer.lr), step);
  return 0;
}
