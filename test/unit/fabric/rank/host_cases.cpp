#include "test/unit/fabric/rank/host_cases.h"
#include "runtime/engine/comm/open_fabric.h"
#include "runtime/plan/coordinate.h"
#include "test/unit/fabric/rank/collective_plan.h"
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <thread>

namespace cleave::runtime::test {
namespace {

const dist::Mesh mesh{{{"a", 2}, {"b", 3}}};
constexpr int failing = 2;
constexpr TimeLimit deadline{120, "--preparation-timeout"}; // of what does not fail

std::string blobOf(int64_t from, int64_t to, int64_t bytes) {
  std::string blob(static_cast<size_t>(bytes), '\0');
  for (size_t i = 0; i < blob.size(); ++i) blob[i] = static_cast<char>(i * 7 + static_cast<size_t>(from * 31 + to));
  return blob;
}

Status expect(bool isSo, const std::string &what) { return isSo ? Status::ok() : runError(what); }

Status control(Fabric &fabric) {
  const auto rank = static_cast<int>(fabric.localDevices().front());
  const int64_t ranks = mesh.numDevices() / std::ssize(fabric.localDevices());
  for (int turn = 0; turn < 20; ++turn) CLEAVE_RETURN_IF_ERROR(fabric.control().barrier(deadline));
  Result<bool> same = fabric.control().allEqual(42, deadline);
  if (!same) return same.status();
  CLEAVE_RETURN_IF_ERROR(expect(*same, "equal numbers are not"));
  Result<bool> other = fabric.control().allEqual(rank == failing ? 43 : 42, deadline);
  if (!other) return other.status();
  CLEAVE_RETURN_IF_ERROR(expect(!*other || ranks == 1, "another number is not seen"));
  const auto number = static_cast<uint64_t>(rank);
  Result<uint64_t> most = fabric.control().allReduceMax((number * 5 + 3) % 7, deadline);
  if (!most) return most.status();
  CLEAVE_RETURN_IF_ERROR(expect(*most == (ranks == 1 ? 3 : 6), fmt::format("the largest is {}", *most)));
  for (int64_t bytes : {int64_t(0), int64_t(1), int64_t(52), int64_t(53), int64_t(3) << 20}) {
    std::string shared = blobOf(rank, 0, bytes);
    CLEAVE_RETURN_IF_ERROR(fabric.control().broadcast(std::as_writable_bytes(std::span(shared)), deadline));
    CLEAVE_RETURN_IF_ERROR(expect(shared == blobOf(0, 0, bytes), fmt::format("a broadcast of {} bytes", bytes)));
    Result<std::vector<std::string>> all = fabric.control().allGather(blobOf(rank, 1, bytes / (rank + 1)), deadline);
    if (!all) return all.status();
    CLEAVE_RETURN_IF_ERROR(expect(std::ssize(*all) == ranks, "not all are gathered"));
    for (int64_t r = 0; r < ranks; ++r)
      CLEAVE_RETURN_IF_ERROR(expect((*all)[static_cast<size_t>(r)] == blobOf(r, 1, bytes / (r + 1)),
                                    fmt::format("gathered of rank {}: {} bytes", r, bytes)));
    // To all others, then around a ring, from one to the next.
    for (bool isRing : {false, true}) {
      std::vector<Blob> blobs;
      std::vector<int> from;
      for (int r = 0; r < ranks; ++r) {
        if (r != rank && (!isRing || r == (rank + 1) % ranks)) blobs.push_back({r, blobOf(rank, r, bytes / (r + 1))});
        if (r != rank && (!isRing || rank == (r + 1) % ranks)) from.push_back(r);
      }
      Result<std::vector<std::string>> received = fabric.exchange(blobs, from, deadline);
      if (!received) return received.status();
      for (size_t i = 0; i < from.size(); ++i)
        CLEAVE_RETURN_IF_ERROR(expect((*received)[i] == blobOf(from[i], rank, bytes / (rank + 1)),
                                      fmt::format("exchanged with rank {}: {} bytes", from[i], bytes)));
    }
  }
  return Status::ok();
}

plan::Collective collectiveOf(plan::Collective::Op op, int64_t elements) {
  plan::Collective collective;
  collective.set_op(op);
  collective.add_axes("a"), collective.add_axes("b");
  plan::Buffer &in = *collective.add_inputs(), &out = *collective.add_outputs();
  in.set_dtype(plan::F32), in.add_shape(elements);
  out = in;
  collective.add_dims(0);
  if (op != plan::Collective::ALL_GATHER) return collective;
  out.set_offset(1 << 20), out.set_shape(0, elements * mesh.numDevices());
  return collective;
}

// The collectives of one device, until one fails; `commands` outlive those of the others, which read them.
Status loop(Fabric &fabric, int64_t device, const std::string &name, std::vector<Prepared> &commands) {
  const bool differs = device == failing, isOther = differs && name == "other-collective";
  const int64_t elements = differs && name == "other-size" ? 4000 : 600;
  auto of = [&](plan::Collective::Op op) { return fabric.prepare(device, 0, collectiveOf(op, elements)); };
  Result<Prepared> first = of(plan::Collective::ALL_REDUCE),
                   second = of(isOther ? plan::Collective::ALL_GATHER : plan::Collective::ALL_REDUCE);
  if (!first || !second) return first ? second.status() : first.status();
  commands.push_back(std::move(*first)), commands.push_back(std::move(*second));
  if (std::ssize(fabric.localDevices()) == 1) CLEAVE_RETURN_IF_ERROR(fabric.connect(deadline));
  for (int turn = 0;; ++turn) {
    if (differs && turn == 50 && name == "abort") fabric.abort("rank 2 has had enough", 4);
    if (differs && turn == 50 && name == "killed") ::raise(SIGKILL);
    if (name == "stopped" && turn == 50) {
      if (differs) ::raise(SIGSTOP);
      return fabric.control().barrier({3, "--step-timeout"});
    }
    CLEAVE_RETURN_IF_ERROR(commands[turn < 20 ? 0 : 1]->run());
  }
}

// Until all survivors have seen it, so that what each says is of the failing rank and not of one that has ended.
void waitForOthers(int64_t rank, const std::string &folder) {
  std::ofstream(fmt::format("{}/{}", folder, rank)) << "";
  auto has = [&](int64_t r) { return r == failing || std::filesystem::exists(fmt::format("{}/{}", folder, r)); };
  for (int turn = 0; turn < 600; ++turn) {
    bool all = true;
    for (int64_t r = 0; r < mesh.numDevices(); ++r) all &= has(r);
    if (all) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

} // namespace

Status runHostCase(const std::string &name, const std::string &folder) {
  Result<std::unique_ptr<Fabric>> opened = openFabric(mesh, "fabric conformance");
  if (!opened) return opened.status();
  Fabric &fabric = **opened;
  if (name == "control") return control(fabric);
  const std::vector<int64_t> devices = fabric.localDevices();
  std::vector<Status> ended(devices.size());
  std::vector<std::vector<std::byte>> arenas(devices.size(), std::vector<std::byte>(2 << 20));
  for (size_t d = 0; d < devices.size(); ++d) fabric.attach(devices[d], arenas[d].data());
  std::vector<std::vector<Prepared>> commands(devices.size());
  std::vector<std::thread> threads;
  for (size_t d = 0; d < devices.size(); ++d)
    threads.emplace_back([&, d] { ended[d] = loop(fabric, devices[d], name, commands[d]); });
  for (std::thread &thread : threads) thread.join();
  for (size_t d = 0; d < devices.size(); ++d)
    std::printf("rank %d: %s\n", static_cast<int>(devices[d]), ended[d].message().c_str());
  std::fflush(stdout);
  if (name == "killed" || name == "stopped") waitForOthers(devices.front(), folder);
  fabric.abort("the run ends", 4);
  return ended.front();
}

} // namespace cleave::runtime::test
