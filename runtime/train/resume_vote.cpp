#include "runtime/train/resume_vote.h"
#include "runtime/train/state/changes.h"
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace cleave::runtime {

Result<ResumedState> ResumeVote::choose(std::vector<std::string> candidates, Mirror *mirror) {
  const std::string folder = candidates.empty() ? "" : std::filesystem::path(candidates.front()).parent_path().string();
  Result<Choice> choice = nextChoice(candidates);
  if (!choice) return choice.status();
  Result<bool> isTaken = false;
  if (mirror) {
    mirror->setRun(choice->run);
    CLEAVE_ASSIGN_OR_RETURN(std::string kept, mirror->recover());
    // By its name, which is the same on all ranks: one of them may not be able to open it.
    if (!kept.empty() && std::atoll(kept.substr(kept.rfind('-') + 1).c_str()) > choice->step)
      isTaken = take(Snapshot::open(kept), nullptr);
  }
  while (isTaken && !*isTaken && !choice->path.empty()) {
    std::filesystem::path named = choice->path;
    if (!options.folder.empty()) named = std::filesystem::path(options.folder) / named.filename();
    isTaken = take(Snapshot::open(named.string()), &*choice);
    if (!isTaken || *isTaken) break;
    choice = nextChoice(candidates);
    if (!choice) return choice.status();
  }
  if (!isTaken) return isTaken.status();
  Status none;
  if (!*isTaken && !folder.empty()) none = inputError(folder + ": holds no snapshot that all ranks can read");
  CLEAVE_RETURN_IF_ERROR(control.outcome(none, options.limit));
  return taken;
}

// Rank 0's newest snapshot that was not proposed yet; on rank 0 it says why damaged ones are not.
Result<ResumeVote::Choice> ResumeVote::nextChoice(std::vector<std::string> &candidates) {
  Choice choice;
  while (!candidates.empty() && choice.path.empty()) {
    const std::string path = std::move(candidates.back());
    candidates.pop_back();
    Result<SnapshotManifest> manifest = readManifest(path, /*checkFiles=*/false); // take() looks at them
    if (manifest)
      choice = {path, manifest->checksum, manifest->run, manifest->step};
    else
      options.warn(manifest.status().message() + "; an older snapshot is taken, if there is one");
  }
  const nlohmann::json mine = {choice.path, choice.checksum, choice.run, choice.step};
  CLEAVE_ASSIGN_OR_RETURN(std::string text, control.fromRank0(mine.dump(), options.limit));
  try {
    const nlohmann::json told = nlohmann::json::parse(text);
    return Choice{told.at(0), told.at(1), told.at(2), told.at(3)};
  } catch (const nlohmann::json::exception &) {
    return runError("rank 0 sent something else than the snapshot to go on from");
  }
}

// What is not as it was when the snapshot was written is told. Error: it would be another training.
Status ResumeVote::checkChanges(const SnapshotManifest &manifest, const std::string &path) {
  const Changes changes = changesSince(manifest, source);
  if (!changes.refused.empty() && !options.acceptChanges)
    return inputError(fmt::format("{}: is of another training: {}; --accept-changes goes on all the same", path,
                                  fmt::join(changes.refused, "; ")));
  const std::vector<std::string> all = changes.all();
  if (!all.empty()) options.note(fmt::format("changed since {}: {}", path, fmt::join(all, "; ")));
  return Status::ok();
}

// State that the snapshot lacks is there by what has changed in the recipe, such as `ema`.
Status ResumeVote::explained(const Status &fault, const SnapshotManifest &manifest) const {
  if (fault) return fault;
  const std::vector<std::string> all = changesSince(manifest, source).all();
  return all.empty() ? fault : inputError(fmt::format("{}; changed since: {}", fault.message(), fmt::join(all, "; ")));
}

// Whether all ranks could read this state, and have it now. Error: it is of another training or of another folder.
Result<bool> ResumeVote::take(Result<std::unique_ptr<Snapshot>> opened, const Choice *choice) {
  Status fits;
  if (opened && choice && (*opened)->manifest().checksum != choice->checksum)
    fits = inputError(choice->path + " is another snapshot here than on rank 0: all ranks need one folder");
  if (opened && fits) fits = explained(checkResumes(**opened, source), (*opened)->manifest());
  if (opened && fits) fits = checkChanges((*opened)->manifest(), (*opened)->path());
  CLEAVE_RETURN_IF_ERROR(control.outcome(fits, options.limit));
  const Status status = opened ? options.load(**opened) : opened.status();
  if (!status) options.warn(status.message());
  CLEAVE_ASSIGN_OR_RETURN(uint64_t failed, control.allReduceMax(status ? 0 : 1, options.limit));
  if (failed != 0) {
    if (choice && control.rank() == 0)
      options.warn(choice->path + ": cannot be read by all ranks; an older snapshot is taken, if there is one");
    return false;
  }
  taken = {(*opened)->path(), (*opened)->manifest().run};
  return true;
}

} // namespace cleave::runtime
