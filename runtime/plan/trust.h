// Whose plans are run. A plan is a program: its kernels are native code, and it names the files that are read. One is
// run if
// - a key of `keys` has signed it (then it must be one of those), or
// - its digest is among those that this user trusts: `cleave compile` adds its own, `trustCode` those of others.
//
//   Result<plan::Plan> plan = readTrustedPlan("x.plan", {.keys = "them.pub"});
//
// The digests are names of files in the state folder: $CLEAVE_STATE_DIR, $XDG_STATE_HOME/cleave or
// ~/.local/state/cleave, below it trusted/HEX. The folder must be the user's own.
#pragma once
#include "plan/plan.pb.h"
#include "runtime/base/status.h"
#include <functional>
#include <string>

namespace cleave::runtime {

struct Trust {
  std::string keys = {}; // file of public keys; empty: signatures count for nothing
  bool code = false;     // trust this plan from now on
  // With `code`: only if this is how its digest begins (hex, 16 digits or more); empty: whatever it is.
  std::string digest = {};
  std::function<void(const std::string &)> note = {}; // what went on that is no error
};

// Reads a plan that may be executed. Error: it cannot be read, or nobody vouches for it: names what it would run and
// read, and the ways out. verifyPlan, which every run calls, checks its content.
Result<plan::Plan> readTrustedPlan(const std::string &path, const Trust &trust);

// Adds the digest of an encoded plan to those of this user. Error: there is no folder for it, or it is not the user's.
Status trustPlan(const std::string &encoded);

} // namespace cleave::runtime
