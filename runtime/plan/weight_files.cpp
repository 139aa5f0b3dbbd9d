#include "runtime/plan/weight_files.h"
#include "runtime/base/digest.h"
#include "runtime/base/folder.h"
#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <map>
#include <sys/stat.h>

namespace fs = std::filesystem;

namespace cleave::runtime {
namespace {

constexpr size_t sampleBytes = 64 << 10, samples = 1024;

// Blocks at equal distances, the first and the last among them; everything, where they would meet.
std::string sampledDigest(std::string_view bytes) {
  Digest digest;
  if (bytes.size() <= samples * sampleBytes) return digest.add(bytes).finish();
  for (size_t i = 0; i < samples; ++i) {
    const auto begin =
        static_cast<size_t>(static_cast<unsigned __int128>(bytes.size() - sampleBytes) * i / (samples - 1));
    digest.add(bytes.substr(begin, sampleBytes));
  }
  return digest.finish();
}

int64_t modifiedAt(const std::string &place) {
  struct stat known{};
  if (::stat(place.c_str(), &known) != 0) return 0;
  return static_cast<int64_t>(known.st_mtim.tv_sec) * 1'000'000'000 + known.st_mtim.tv_nsec;
}

using Sources = std::map<std::pair<bool, std::string>, const plan::Source *>; // one of each file

void addSources(const plan::Parameter &parameter, Sources &sources) {
  auto add = [&](const plan::Source &source) { sources[{source.in_checkpoint(), source.path()}] = &source; };
  if (parameter.has_file() && parameter.file().runs().empty()) add(parameter.file());
  for (const plan::Source &run : parameter.file().runs()) add(run);
  for (const plan::Parameter &piece : parameter.pieces()) addSources(piece, sources);
}

} // namespace

bool staysInFolder(const std::string &path) {
  const fs::path relative(path);
  return !relative.is_absolute() && std::find(relative.begin(), relative.end(), "..") == relative.end() &&
         path.find('\0') == std::string::npos;
}

Result<std::string> weightPath(const plan::Plan &plan, const std::string &model, const plan::Source &source) {
  const std::string &path = source.path();
  if (path.empty() && !source.in_checkpoint()) return model;
  auto refuse = [&] {
    return inputError(fmt::format("the weight file '{}' is outside of the {}'s folder", path,
                                  source.in_checkpoint() ? "checkpoint" : "model"));
  };
  if (!staysInFolder(path)) return refuse();
  std::error_code failure;
  const fs::path place(source.in_checkpoint() ? plan.checkpoint_path() : model),
      folder = fs::is_directory(place, failure) ? place : fs::absolute(place).parent_path();
  const fs::path real = fs::weakly_canonical(folder / path, failure),
                 rest = real.lexically_relative(fs::weakly_canonical(folder, failure));
  if (rest.empty() || *rest.begin() == "..") return refuse();
  return real.string();
}

Result<std::vector<std::string>> recordWeightFiles(plan::Plan &plan, bool whole) {
  std::vector<std::string> missing;
  Sources sources;
  for (const plan::Parameter &parameter : plan.parameters()) addSources(parameter, sources);
  for (const auto &[name, source] : sources) {
    CLEAVE_ASSIGN_OR_RETURN(std::string place, weightPath(plan, plan.model_path(), *source));
    CLEAVE_ASSIGN_OR_RETURN(const fs::file_type type, fileTypeOf(place));
    if (type == fs::file_type::not_found) {
      missing.push_back(place);
      continue;
    }
    CLEAVE_ASSIGN_OR_RETURN(std::shared_ptr<MappedFile> file, MappedFile::open(place));
    const std::string_view bytes = file->bytes();
    plan::WeightFile &known = *plan.add_weight_files();
    known.set_path(source->path());
    known.set_in_checkpoint(source->in_checkpoint());
    known.set_bytes(static_cast<int64_t>(bytes.size()));
    known.set_modified(modifiedAt(place));
    known.set_sampled(sampledDigest(bytes));
    if (whole) known.set_whole(Digest().add(bytes).finish());
  }
  return missing;
}

Status checkWeightFile(const plan::Plan &plan, const plan::Source &source, const std::string &place,
                       const MappedFile &file, const WeightCheck &check) {
  auto known = std::find_if(plan.weight_files().begin(), plan.weight_files().end(), [&](const plan::WeightFile &one) {
    return one.path() == source.path() && one.in_checkpoint() == source.in_checkpoint();
  });
  const bool isKnown = known != plan.weight_files().end();
  if (check.whole && (!isKnown || known->whole().empty()))
    return inputError(
        fmt::format("{}: the plan does not hold the digest of all of it: compile it with --check-weights", place));
  if (!isKnown) return Status::ok(); // it was not there when the plan was compiled
  auto changed = [&](const std::string &how) {
    return inputError(fmt::format(
        "{}: {} since the plan was compiled. Compile the plan again to train from it as it "
        "is{}",
        place, how, source.in_checkpoint() ? "" : ", or give the model that it was compiled for (--model)"));
  };
  const std::string_view bytes = file.bytes();
  if (static_cast<int64_t>(bytes.size()) != known->bytes())
    return changed(fmt::format("its size has changed from {} to {} bytes", known->bytes(), bytes.size()));
  if (sampledDigest(bytes) != known->sampled()) return changed("its contents have changed");
  if (check.whole && Digest().add(bytes).finish() != known->whole()) return changed("its contents have changed");
  if (!check.whole && bytes.size() > samples * sampleBytes && modifiedAt(place) != known->modified() && check.note)
    check.note(
        fmt::format("{}: its time has changed since the plan was compiled, and {} sampled blocks of it have not; "
                    "--check-weights compares all of it",
                    place, samples));
  return Status::ok();
}

} // namespace cleave::runtime
