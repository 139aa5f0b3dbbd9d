// What compile and tune share: their options, and what becomes of a plan that was made.
#pragma once
#include "runtime/plan/trust.h"
#include "tools/cleave/commands.h"
#include <optional>

namespace cleave::tool {

struct CompileOptions {
  RequestOptions request;
  std::string output, cpu, signingKey;
  bool json = false, emulate = false, checkWeights = false;
  bool proves = true, mustProve = false, verifies = false;
  bool acceptsDoubts = false;
  int64_t refine = 1;
  std::string importCheck;

  void add(CLI::App &command);
};

class PlanMaker {
public:
  explicit PlanMaker(const CompileOptions &options) : options(options) {}

  // Reads all that is given, and remembers what is warned of from then on.
  Result<CompileRequest> request();
  // Checks the plan, writes it, and tells of it.
  Status finish(Compiled compiled, const CompileRequest &request) const;

  // Where it tells: standard error where the plan goes to standard output.
  std::FILE *beside() const { return options.output == "-" ? stderr : stdout; }

private:
  const CompileOptions &options;
  std::optional<runtime::SecretKey> key;
  std::vector<std::string> told;
};

} // namespace cleave::tool
