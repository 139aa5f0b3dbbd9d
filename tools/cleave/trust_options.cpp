// --trust and --trust-code, and cleave keygen: whose plans are executed (docs/guide/plans-of-others.md).
#include "runtime/base/digest.h"
#include "runtime/plan/signature.h"
#include "runtime/plan/trust.h"
#include "tools/cleave/commands.h"
#include <fmt/core.h>
#include <memory>
#include <nlohmann/json.hpp>

namespace cleave::tool {

void TrustOptions::add(CLI::App &command) {
  auto *keyFile =
      command.add_option("--trust", keys, "file of public keys: run the plan only if one of them has signed it");
  command
      .add_flag("--trust-code", code,
                "run this plan from now on, although another user or machine compiled it; --trust-code=DIGEST: only if "
                "this is how its digest begins")
      ->excludes(keyFile);
}

Result<plan::Plan> TrustOptions::read(const std::string &plan) const {
  runtime::Trust trust;
  trust.keys = keys;
  trust.code = !code.empty() && code != "false";
  if (code != "true") trust.digest = code;
  trust.note = [](const std::string &text) { print(stderr, text + "\n"); };
  return runtime::readTrustedPlan(plan, trust);
}

namespace {

struct KeygenOptions {
  std::string output;
  bool json = false;
};

Status makePair(const KeygenOptions &options) {
  CLEAVE_RETURN_IF_ERROR(runtime::makeKeys(options.output));
  const std::string open = options.output + ".pub";
  if (!options.json)
    return writeText("-", fmt::format("{}: keep it secret, for `cleave compile --sign`\n{}: give it to those who run "
                                      "your plans, for `cleave run --trust`\n",
                                      options.output, open));
  auto keys = runtime::readPublicKeys(open);
  if (!keys) return keys.status();
  return writeJson("-", {{"secret_key", options.output}, {"public_key", open}, {"id", runtime::hexOf(keys->front())}});
}

} // namespace

void addKeygen(CLI::App &app, int &status) {
  auto *command = app.add_subcommand("keygen", "Make a pair of keys: to sign plans, and to know whose they are");
  auto options = std::make_shared<KeygenOptions>();
  command->add_option("-o,--output", options->output, "the secret key's file; the public one is beside it, as FILE.pub")
      ->required();
  command->add_flag("--json", options->json, "for programs: both files, and the public key, which messages name");
  command->callback([options, &status] {
    Status made = makePair(*options);
    status = made ? 0 : fail(made);
  });
}

} // namespace cleave::tool
