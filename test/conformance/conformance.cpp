// ONNX's own node tests: each model is imported and normalized as any model is, what is left is evaluated, and the
// outputs are compared with the recorded ones.
//
//   conformance NODE_FOLDER EXPECTATIONS [--device D] [--gpu KIND] [--jobs N] [--filter GLOB] [--verbose]
//
// NODE_FOLDER holds test_add/{model.onnx,test_data_set_0/*.pb} and so on. Devices: `reference`, by the reference
// evaluator; the others by a plan (on_device.h): `cpu`, `emulation`, `cuda`, `fake-cuda`. --gpu: the kind of GPU that a
// plan is for, as in a cluster file. EXPECTATIONS names the tests that do not pass (expectations.h). --verbose tells
// what became of every test as soon as it ends. On a GPU the test after a wrong one has a new process.
#include "compiler/cluster/device_presets.h"
#include "test/conformance/expectations.h"
#include "test/conformance/node_test.h"
#include "test/conformance/on_device.h"
#include "test/conformance/workers.h"
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstring>
#include <fnmatch.h>

using namespace cleave;
using namespace cleave::conformance;
namespace fs = std::filesystem;

namespace {

struct NamedDevice {
  const char *name;
  Device device;
};
constexpr NamedDevice devices[] = {
    {"cpu", Device::Cpu}, {"emulation", Device::Emulation}, {"cuda", Device::Cuda}, {"fake-cuda", Device::FakeCuda}};

Evaluate evaluateBy(const std::string &name, const std::string &target, bool channelsLast) {
  for (const NamedDevice &one : devices)
    if (name == one.name) return evaluateOn(one.device, target, channelsLast);
  return evaluateByReference;
}

std::vector<fs::path> findTests(const std::string &folder, const std::string &filter) {
  std::vector<fs::path> tests;
  for (const auto &entry : fs::directory_iterator(folder))
    if (fs::exists(entry.path() / "model.onnx") &&
        (filter.empty() || fnmatch(filter.c_str(), entry.path().filename().c_str(), 0) == 0))
      tests.push_back(entry.path());
  std::sort(tests.begin(), tests.end());
  return tests;
}

// An outcome as a worker's text: its kind, whether it is trivial, why.
std::string toText(const Outcome &outcome) {
  return std::string{static_cast<char>('0' + static_cast<int>(outcome.kind)), outcome.isTrivial ? 't' : ' '} +
         outcome.why;
}
Outcome toOutcome(const WorkerResult &result) {
  if (result.signal) return {Outcome::Kind::Crashed, std::string("crashed: ") + strsignal(result.signal)};
  return {static_cast<Outcome::Kind>(result.text[0] - '0'), result.text.substr(2), result.text[1] == 't'};
}

const char *nameOf(Outcome::Kind kind) {
  switch (kind) {
  case Outcome::Kind::Passed:
    return "passed";
  case Outcome::Kind::Refused:
    return "refused";
  case Outcome::Kind::Wrong:
    return "wrong";
  case Outcome::Kind::Crashed:
    return "crashed";
  }
  return "";
}

struct Counts {
  bool verbose;
  int passed = 0, failed = 0, skipped = 0, trivial = 0;

  void add(const std::string &name, const Outcome &outcome, const Expectation *expected) {
    bool passed_ = outcome.kind == Outcome::Kind::Passed;
    if (passed_ && !expected) {
      ++passed;
      trivial += outcome.isTrivial;
      if (verbose) std::printf("PASS %s%s\n", name.c_str(), outcome.isTrivial ? " (nothing to compute)" : "");
    } else if (passed_) {
      ++failed;
      std::printf("DRIFT %s passes; take it out of line %d\n", name.c_str(), expected->line);
    } else if (expected && expected->allows(outcome.kind)) {
      ++skipped;
      if (verbose) std::printf("SKIP %s  %s: %s\n", name.c_str(), nameOf(outcome.kind), outcome.why.c_str());
    } else if (expected) {
      ++failed;
      std::printf("DRIFT %s is %s, which line %d does not say: %s\n", name.c_str(), nameOf(outcome.kind),
                  expected->line, outcome.why.c_str());
    } else {
      ++failed;
      std::printf("FAIL %s  %s\n", name.c_str(), outcome.why.c_str());
    }
    std::fflush(stdout); // whoever reads may have minutes only
  }
};

} // namespace

int main(int argc, char **argv) {
  std::string folder, file, device = "reference", gpu = "h100-80g", filter;
  size_t jobs = 1;
  bool verbose = false, channelsLast = false;
  CLI::App app{"ONNX's node tests"};
  app.add_option("NODE_FOLDER", folder)->required();
  app.add_option("EXPECTATIONS", file)->required();
  app.add_option("--device", device)->check(CLI::IsMember({"reference", "cpu", "emulation", "cuda", "fake-cuda"}));
  app.add_option("--gpu", gpu);
  app.add_option("--jobs", jobs);
  app.add_option("--filter", filter);
  app.add_flag("--channels-last", channelsLast, "convolutions and pools compute so");
  app.add_flag("--verbose", verbose);
  CLI11_PARSE(app, argc, argv);
  Result<Expectations> expectations = Expectations::read(file, device);
  if (!expectations) return std::fprintf(stderr, "%s\n", expectations.status().message().c_str()), 2;
  const std::string target = planner::computeCapability(gpu);
  if (target.empty()) return std::fprintf(stderr, "%s is no kind of GPU\n", gpu.c_str()), 2;
  // A plan for an emulated grid would run on a GPU if one were there.
  if (device == "emulation") ::setenv("CUDA_VISIBLE_DEVICES", "", 1);

  const std::vector<fs::path> tests = findTests(folder, filter);
  const Evaluate evaluate = evaluateBy(device, target, channelsLast);
  const bool hasGpu = device == "cuda" || device == "fake-cuda";
  auto run = [&](size_t i) {
    Outcome outcome = NodeTest(tests[i]).run(evaluate);
    return TaskResult(toText(outcome), hasGpu && outcome.kind == Outcome::Kind::Wrong);
  };
  Counts counts{verbose};
  runInProcesses(tests.size(), jobs, run, {.told = [&](size_t i, const WorkerResult &result) {
                   std::string name = tests[i].filename();
                   counts.add(name, toOutcome(result), expectations->of(name));
                 }});
  if (filter.empty())
    for (const Expectation &line : expectations->all())
      if (line.matches == 0) {
        ++counts.failed;
        std::printf("DRIFT line %d: no test is named %s\n", line.line, line.pattern.c_str());
      }
  std::printf("conformance %s: of those that passed, %d had nothing to compute when compiled\n", device.c_str(),
              counts.trivial);
  std::printf("%d passed, %d failed, %d skipped\n", counts.passed, counts.failed, counts.skipped);
  return counts.failed != 0 || counts.passed == 0;
}
