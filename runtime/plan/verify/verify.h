// Static verification of a plan: what must hold before any command runs. `cleave verify --static` and every run call
// it.
//
//   Status s = verifyPlan(plan);   // "fragment final, command 12 'h.0.attn' (contract): out reaches element 4096 of
//   2048"
//
// Checked, in time that does not grow with the number of devices:
// - buffers lie inside the arena, aligned, with a known dtype; persistent tensors do not overlap; only copies reach the
//   host's memory
// - every command's shapes, strides, kernel index, and affine offsets (extremes over the mesh) are consistent, and what
//   it reaches lies in its buffers. The plan declares what a kernel reaches (plan.proto, KernelBuffer)
// - events are recorded once and before they are waited for
// - commands of different streams that nothing orders do not touch overlapping bytes, unless both only read
// - the collectives of every group come in the same order on all its members, so that no deadlock can start
// - routines: slots in range, slot regions apart from everything else, and what an action reads from its slot was
// written
//   there by an earlier action of the same microbatch, and by no other microbatch since
// - pipelines: the i-th send of a device to a peer is met by that peer's i-th receive (tag, microbatch, bytes, dtype),
// and
//   all devices, simulated together with the message buffers they have, reach the end
#pragma once
#include "plan/plan.pb.h"
#include "runtime/base/sharding/mesh.h"
#include "runtime/base/status.h"
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace cleave::runtime {

Status verifyPlan(const plan::Plan &plan);

// The parts of verifyPlan, for tests. Errors name the command's kind of fault only; the caller adds where.
Status verifyCommand(const plan::Command &command, const plan::Plan &plan, const dist::Mesh &mesh);
// Every element that the launch's kernel reaches lies in its buffer, on every device.
Status verifyLaunch(const plan::Launch &launch, const plan::Plan &plan, const dist::Mesh &mesh);
Status verifyLaunchGroup(const plan::LaunchGroup &group, const plan::Plan &plan, const dist::Mesh &mesh);
// On a GPU one launch does a group, by a table of its parts: it says what the parts do, and nothing else writes there.
Status verifyGroupTables(const plan::Program &program, const plan::Plan &plan);
Status verifyOrder(const plan::Fragment &fragment, const plan::Plan &plan); // events and hazards
Status verifyCollectives(const plan::Fragment &fragment);                   // order in the groups
// Slot regions and the routines of one program; its fragments have passed.
Status verifyRoutines(const plan::Program &program, const plan::Plan &plan, const dist::Mesh &mesh, int number);
// Between the programs: inputs and routines that fit together, transfers that meet, no deadlock.
Status verifyPipeline(const plan::Plan &plan, const dist::Mesh &mesh);

// Runs routines on paper, one after the other (a device's lanes begin one together, devices do not wait for each
// other): the lanes of all `devices`, with their events, the order between their actions, message buffers, and
// collectives that wait for each other. The devices are closed under transfers; `together` says whether a collective's
// group goes beyond its own device, and if so which of `devices` are in it. Error: who waits for what when nothing can
// go on, or two different collectives that meet.
Status verifyProgress(const plan::Plan &plan, const dist::Mesh &mesh, const std::vector<std::string> &chain,
                      std::span<const int64_t> devices,
                      const std::function<std::vector<int64_t>(int64_t device, const plan::Collective &)> &together);

// "fragment 'forward.1', command 12 'h.0.attn'"
std::string showCommand(const plan::Fragment &fragment, int command);

} // namespace cleave::runtime
