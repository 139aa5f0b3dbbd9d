// --trust and --trust-code, and cleave keygen: whose plans are executed (docs/guide/plans-of-others.md).
#include "runtime/plan/signature.h"
#include "runtime/plan/trust.h"
#include "tools/cleave/commands.h"
#include <fmt/core.h>
#include <memory>

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

void addKeygen(CLI::App &app, int &status) {
  auto *command = app.add_subcommand("keygen", "Make a pair of keys: to sign plans, and to know whose they are");
  auto output = std::make_shared<std::string>();
  command->add_option("-o,--output", *output, "the secret key's file; the public one is beside it, as FILE.pub")
      ->required();
  command->callback([output, &status] {
    Status made = runtime::makeKeys(*output);
    status = made ? 0 : fail(made);
    if (made)
      print(stdout,
            fmt::format("{}: keep it secret, for `cleave compile --sign`\n{}.pub: give it to those who run your "
                        "plans, for `cleave run --trust`\n",
                        *output, *output));
  });
}

} // namespace cleave::tool
