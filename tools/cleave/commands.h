// The commands (docs/reference/commands.md). Each function adds one subcommand; the subcommand's callback does the work
// and leaves the exit status (0 done, 1 the input is wrong, 2 usage, 3 no plan fits, 4 a run failed).
#pragma once
#include "compiler/driver/compile.h"
#include "compiler/report/tables.h"
#include "runtime/base/status.h"
#include "tools/cleave/number_checks.h"
#include <CLI/CLI.hpp>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace cleave::runtime {
struct TrainOptions;
}

namespace cleave::tool {

void addInit(CLI::App &app, int &status);
void addInspect(CLI::App &app, int &status);
void addPlan(CLI::App &app, int &status);
void addEnv(CLI::App &app, int &status);
void addEstimate(CLI::App &app, int &status);
void addCompile(CLI::App &app, int &status);
void addReport(CLI::App &app, int &status);
void addLaunch(CLI::App &app, int &status);
void addRun(CLI::App &app, int &status);
void addEval(CLI::App &app, int &status);
void addBench(CLI::App &app, int &status);
void addCheck(CLI::App &app, int &status);
void addTune(CLI::App &app, int &status);
void addVerify(CLI::App &app, int &status);
void addSimulate(CLI::App &app, int &status);
void addExport(CLI::App &app, int &status);
void addProbe(CLI::App &app, int &status);
void addSchedule(CLI::App &app, int &status);
void addKeygen(CLI::App &app, int &status);
void addCompletion(CLI::App &app, int &status);

// --cluster C and the split flags: all that searches shares them.
struct SplitOptions {
  std::string cluster;
  planner::SplitFlags split;
  int64_t top = 0;
  double searchSeconds = 0;
  std::vector<std::string> searchMoves;

  void add(CLI::App &command);
  // The search tells its progress on standard error.
  planner::SearchOptions search() const;
};

// MODEL --recipe R and the above: estimate and compile share them.
struct RequestOptions {
  std::string model, recipe, problemFile, irFolder;
  std::vector<std::string> overrides;
  SplitOptions split;
  bool ignoreAnnotations = false;

  void add(CLI::App &command);
  // Reads the recipe and the cluster.
  Result<CompileRequest> request() const;
};

// How this process meets the others, finds the weights and uses its cores: run and eval share them.
void addProcessOptions(CLI::App &command, runtime::TrainOptions &train);

// The parts that the program was built from, and those of them that this machine has, in order: {"LLVM", "22.1.8"}.
std::vector<report::Row> versionFacts();
// A row a line, columns under one another.
std::string table(const std::vector<report::Row> &rows);
// "1.0 (0123abc)".
std::string versionName();
// The report with the command and the version that made it, and the recipe as resolved; "": there is none.
report::Report withOrigin(report::Report report, const std::string &recipe);
// The text that `cleave --version` prints.
std::string versionText();
// --trust and --trust-code: run and verify share them.
struct TrustOptions {
  std::string keys, code;

  void add(CLI::App &command);
  Result<plan::Plan> read(const std::string &plan) const; // runtime::readTrustedPlan
};

// Text that may hold names out of files, to a terminal: what a terminal would obey is shown (runtime/base/printable.h).
void print(std::FILE *to, const std::string &text);
// Columns of the terminal that standard output is; else $COLUMNS, or 100.
int terminalWidth();
// Prints "cleave: error: ..." to standard error; returns the exit status.
int fail(const Status &status);
// Writes text to a file, or as print does to standard output for "-" or "".
Status writeText(const std::string &path, const std::string &text);
// A cluster file, which is read back before: lines of comments, and the keys.
Status writeCluster(const std::string &comments, const planner::Cluster &cluster, const std::string &path);
// Writes JSON the same way; bytes that are no UTF-8 are replaced.
Status writeJson(const std::string &path, const nlohmann::ordered_json &json);

} // namespace cleave::tool
