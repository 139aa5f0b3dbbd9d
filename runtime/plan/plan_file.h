// The plan on disk: a fixed header in front of the serialized plan.proto message.
//
//   bytes  0..7   "CLEAVEPL"
//          8..11  format version (little endian, as all numbers here)
//         12..15  CRC-32 of bytes 16..39 and 0..11
//         16..23  feature bits: what a reader must understand to run this plan
//         24..31  payload length
//         32..35  CRC-32 of the payload
//         36..39  0
//         40..    plan.Plan
//   then, of a signed plan, 32 bytes of the signer's public key and 64 of the signature over the digest (signature.h)
//
// A reader refuses what it does not know: a newer format version, an unknown feature bit, a field that its messages do
// not have, a wrong length or checksum.
//
//   Status s = writePlanFile(plan, "gpt.plan");       // atomic_file.h
//   Result<plan::Plan> p = readPlanFile("gpt.plan");  // error: "gpt.plan: truncated: 1200 of 4096 bytes ..."
#pragma once
#include "plan/plan.pb.h"
#include "runtime/base/status.h"
#include "runtime/plan/signature.h"
#include <optional>
#include <string>
#include <string_view>

namespace cleave::runtime {

constexpr uint32_t planFormatVersion = 1;
constexpr size_t planHeaderBytes = 40;

enum PlanFeature : uint64_t {
  FeatureStages = 1, // more than one program, or transfers
  FeatureSigned = 2, // a signature follows
};
constexpr uint64_t knownPlanFeatures = FeatureStages | FeatureSigned;

Result<std::string> encodePlan(const plan::Plan &plan);
// `name` is cited in errors.
Result<plan::Plan> decodePlan(std::string_view bytes, const std::string &name);

// Signs what encodePlan has made.
void signPlan(std::string &encoded, const SecretKey &key);
// The identity of a plan's bytes, which decodePlan must take.
struct PlanIdentity {
  std::string digest;                 // 32 bytes (digest.h), of the message
  std::optional<Signature> signature; // as it stands there
};
PlanIdentity identityOf(std::string_view bytes);

Status writePlanFile(const plan::Plan &plan, const std::string &path);
Result<plan::Plan> readPlanFile(const std::string &path);

} // namespace cleave::runtime
