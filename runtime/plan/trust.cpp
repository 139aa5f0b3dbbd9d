#include "runtime/plan/trust.h"
#include "runtime/base/digest.h"
#include "runtime/base/mapped_file.h"
#include "runtime/plan/plan_file.h"
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

namespace fs = std::filesystem;

namespace cleave::runtime {
namespace {

constexpr size_t leastDigits = 16;

std::string variable(const char *name) {
  const char *value = std::getenv(name);
  return value ? value : "";
}

Result<fs::path> stateFolder() {
  if (std::string folder = variable("CLEAVE_STATE_DIR"); !folder.empty()) return fs::path(folder);
  if (fs::path folder = variable("XDG_STATE_HOME"); folder.is_absolute()) return folder / "cleave"; // as XDG asks
  fs::path home = variable("HOME");
  if (const passwd *user = home.empty() ? ::getpwuid(::geteuid()) : nullptr) home = user->pw_dir;
  if (!home.is_absolute())
    return inputError("this user has no home folder for the list of trusted plans: set CLEAVE_STATE_DIR");
  return home / ".local" / "state" / "cleave";
}

// Nobody else could have written it.
bool isOwn(const fs::path &path, mode_t kind) {
  struct stat known{};
  return ::lstat(path.c_str(), &known) == 0 && (known.st_mode & S_IFMT) == kind && known.st_uid == ::geteuid() &&
         (known.st_mode & 022) == 0;
}

bool isTrusted(const std::string &digest) {
  Result<fs::path> state = stateFolder();
  return state && isOwn(*state / "trusted", S_IFDIR) && isOwn(*state / "trusted" / hexOf(digest), S_IFREG);
}

Status trustDigest(const std::string &digest) {
  CLEAVE_ASSIGN_OR_RETURN(fs::path state, stateFolder());
  const fs::path folder = state / "trusted", entry = folder / hexOf(digest);
  auto fail = [&](const std::string &why) {
    return inputError(
        fmt::format("the list of trusted plans, {}: {}; CLEAVE_STATE_DIR gives another place", folder.string(), why));
  };
  std::error_code failure;
  fs::create_directories(state, failure);
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return fail(std::strerror(errno));
  if (!isOwn(folder, S_IFDIR)) return fail("is not a folder that only you may write to");
  const int file = ::open(entry.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (file < 0) return fail(std::strerror(errno));
  ::close(file);
  return Status::ok();
}

// Where the paths of a recipe's `data` map are, for a person.
std::string dataLine(const plan::Plan &plan) {
  const std::string &yaml = plan.training().data_yaml();
  std::string line;
  for (size_t at = yaml.find("path:"); at != std::string::npos; at = yaml.find("path:", at + 5)) {
    const size_t begin = yaml.find_first_not_of(' ', at + 5);
    if (begin == std::string::npos) break;
    const size_t end = yaml[begin] == '['   ? yaml.find(']', begin) + 1
                       : yaml[begin] == '"' ? yaml.find('"', begin + 1) + 1
                                            : yaml.find_first_of(",}\n", begin);
    line += (line.empty() ? ", data from " : " and ") + yaml.substr(begin, end - begin);
  }
  return line;
}

std::string weightsLine(const plan::Plan &plan) {
  const std::string model = plan.model_path().empty() ? "no file" : plan.model_path();
  return plan.checkpoint_path().empty() ? model : fmt::format("{} and {}", model, plan.checkpoint_path());
}

Status strange(const std::string &path, const plan::Plan &plan, const PlanIdentity &known) {
  const std::string digest = hexOf(known.digest);
  const std::string code = plan.kernel_object().empty()
                               ? plan.has_cuda() ? "kernels for " + plan.cuda().target() : "no kernels"
                               : "native code for " + plan.kernel_target();
  return inputError(fmt::format(
      "{}: a plan is a program, and this one was not compiled here by you. It runs {}, and reads weights from {}{}. {} "
      "Look at it with `cleave report` and `cleave verify --static`, which run nothing of it. If you trust who made "
      "it, "
      "give --trust-code once (--trust-code={} accepts no other plan){}",
      path, code, weightsLine(plan), dataLine(plan),
      known.signature ? fmt::format("The key {} has signed it.", hexOf(known.signature->key)) : "Nobody has signed it.",
      digest.substr(0, 2 * leastDigits), known.signature ? ", or the signer's public key with --trust KEYFILE" : ""));
}

Status checkSigned(const std::string &path, const PlanIdentity &known, const std::string &keyFile) {
  CLEAVE_ASSIGN_OR_RETURN(std::vector<std::string> keys, readPublicKeys(keyFile));
  if (!known.signature)
    return inputError(fmt::format("{}: is not signed, and --trust {} takes plans of its keys only: `cleave compile "
                                  "--sign KEY` signs",
                                  path, keyFile));
  if (isSignedBy(*known.signature, known.digest, keys)) return Status::ok();
  return inputError(fmt::format("{}: its signer's key, {}, is not in {}", path, hexOf(known.signature->key), keyFile));
}

Status checkGivenDigest(const std::string &path, const PlanIdentity &known, const std::string &given) {
  const std::string digest = hexOf(known.digest);
  if (given.empty() || (given.size() >= leastDigits && digest.starts_with(given))) return Status::ok();
  return inputError(fmt::format("{}: its digest is {}, and --trust-code gives {} ({} digits at least)", path, digest,
                                given, leastDigits));
}

} // namespace

Result<plan::Plan> readTrustedPlan(const std::string &path, const Trust &trust) {
  CLEAVE_ASSIGN_OR_RETURN(std::shared_ptr<MappedFile> file, MappedFile::open(path));
  const std::string bytes(file->bytes()); // what is checked is what is run, whoever writes to the file meanwhile
  Result<plan::Plan> plan = decodePlan(bytes, path);
  if (!plan) return plan;
  const PlanIdentity known = identityOf(bytes);
  if (known.signature && !isValid(*known.signature, known.digest))
    return inputError(path + ": its signature is not one of this plan: it was changed after it was signed");
  if (!trust.keys.empty()) {
    Status is = checkSigned(path, known, trust.keys);
    if (!is) return is;
    return plan;
  }
  if (trust.code) {
    CLEAVE_RETURN_IF_ERROR(checkGivenDigest(path, known, trust.digest));
    Status remembered = trustDigest(known.digest);
    if (!remembered && trust.note) trust.note("the plan is trusted this time only: " + remembered.message());
    return plan;
  }
  if (isTrusted(known.digest)) return plan;
  return strange(path, *plan, known);
}

Status trustPlan(const std::string &encoded) { return trustDigest(identityOf(encoded).digest); }

} // namespace cleave::runtime
