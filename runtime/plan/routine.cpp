#include "runtime/plan/routine.h"
#include <algorithm>
#include <array>
#include <cctype>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::runtime {

std::string kindName(const plan::Command &command) {
  std::string name;
  if (command.has_collective())
    name = plan::Collective::Op_Name(command.collective().op());
  else if (const auto *field = plan::Command::descriptor()->FindFieldByNumber(command.kind_case()))
    name = field->name();
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name.empty() ? "command without a kind" : name;
}

int laneOf(const plan::Command &command) {
  if (command.stream() == 0) return computeLane;
  if (command.has_copy() && command.copy().source().on_host()) return fetchLane;
  if (command.has_copy() && command.copy().target().on_host()) return evictLane;
  bool receives = command.has_transfer() && command.transfer().direction() == plan::Transfer::RECEIVE;
  if (receives) return receiveLane;
  return command.stream() < firstAxisLane ? communicationLane : command.stream();
}

std::vector<int> lanesOf(const plan::Program &program) {
  std::array<bool, numLanes> isUsed{};
  isUsed[computeLane] = true;
  for (const plan::Fragment &fragment : program.fragments())
    for (const plan::Command &command : fragment.commands()) isUsed[static_cast<size_t>(laneOf(command))] = true;
  std::vector<int> used;
  for (int lane = 0; lane < numLanes; ++lane)
    if (isUsed[static_cast<size_t>(lane)]) used.push_back(lane);
  return used;
}

int laneAlong(const dist::Mesh &mesh, const dist::Axes &axes) {
  auto isOf = [&](const std::string &name) { return std::find(axes.begin(), axes.end(), name) != axes.end(); };
  if (dist::hasPipelineAxis(axes)) return communicationLane;
  for (int i = 0; i < numLanes - firstAxisLane && i < static_cast<int>(mesh.axes.size()); ++i)
    if (isOf(mesh.axes[static_cast<size_t>(i)].name)) return firstAxisLane + i;
  return communicationLane;
}

std::string laneName(int lane, const plan::Mesh &mesh) {
  constexpr std::array<const char *, firstAxisLane> names{"compute", "communication", "receive", "from-host",
                                                          "to-host"};
  if (lane < firstAxisLane) return names[static_cast<size_t>(lane)];
  int axis = lane - firstAxisLane;
  return fmt::format("communication over {}", axis < mesh.axes_size() ? mesh.axes(axis).name() : "no axis");
}

int programOf(const plan::Plan &plan, const dist::Mesh &mesh, int64_t device) {
  return plan.programs_size() < 2 ? 0 : static_cast<int>(mesh.indexAlong(device, {dist::pipelineAxis}));
}

std::optional<int64_t> offsetIn(const plan::Parameter &parameter, int program) {
  int64_t begin = parameter.on_host() ? hostMemory : 0;
  if (parameter.pp_coordinates().empty()) return begin + parameter.offset();
  for (int i = 0; i < parameter.pp_coordinates_size() && i < parameter.offsets_size(); ++i)
    if (parameter.pp_coordinates(i) == program) return begin + parameter.offsets(i);
  return std::nullopt;
}

int64_t firstHolder(const plan::Parameter &parameter) {
  const auto &held = parameter.pp_coordinates();
  return held.empty() ? 0 : *std::min_element(held.begin(), held.end());
}

const plan::Routine *findRoutine(const plan::Program &program, const std::string &name) {
  for (const plan::Routine &routine : program.routines())
    if (routine.name() == name) return &routine;
  return nullptr;
}

namespace {
const std::string &wholeOf(const std::string &part) {
  static const std::string step = "step";
  return part == "fill" || part == "drain" ? step : part;
}
} // namespace

bool stepsOverlap(const plan::Plan &plan) { return plan.programs_size() > 0 && findRoutine(plan.programs(0), "fill"); }

std::vector<std::vector<std::string>> routineChains(const plan::Plan &plan) {
  std::vector<std::vector<std::string>> chains;
  if (stepsOverlap(plan)) chains = {{"fill", "step", "step", "drain"}, {"fill", "drain"}};
  for (const plan::Routine &routine : plan.programs(0).routines())
    if (!stepsOverlap(plan) || wholeOf(routine.name()) != "step") chains.push_back({routine.name()});
  return chains;
}

std::vector<ChainAction> actionsOf(const plan::Program &program, const std::vector<std::string> &chain) {
  std::vector<ChainAction> actions;
  int64_t step = 0;
  for (size_t i = 0; i < chain.size(); ++i) {
    for (const plan::Action &action : findRoutine(program, chain[i])->actions())
      actions.push_back({&action, step + action.ahead(), static_cast<int>(i)});
    step += chain[i] == "step";
  }
  return actions;
}

std::string chainName(const std::vector<std::string> &chain) {
  return chain.size() == 1 ? fmt::format("routine '{}'", chain[0]) : fmt::format("routines {}", fmt::join(chain, ", "));
}

std::vector<const plan::InputBinding *> inputsOf(const plan::Plan &plan, const std::string &part) {
  const std::string &name = wholeOf(part);
  std::vector<const plan::InputBinding *> inputs;
  for (const plan::Program &program : plan.programs()) {
    const plan::Routine *routine = findRoutine(program, name);
    std::vector<bool> seen(static_cast<size_t>(program.fragments_size()), false);
    if (!routine) continue;
    for (const plan::Action &action : routine->actions()) {
      if (seen[static_cast<size_t>(action.fragment())]) continue;
      seen[static_cast<size_t>(action.fragment())] = true;
      for (const plan::InputBinding &input : program.fragments(action.fragment()).inputs())
        if (std::none_of(inputs.begin(), inputs.end(), [&](auto *known) { return known->name() == input.name(); }))
          inputs.push_back(&input);
    }
  }
  return inputs;
}

int64_t microbatchesOf(const plan::Plan &plan, const std::string &part) {
  const std::string &name = wholeOf(part);
  int64_t count = 0;
  for (const plan::Program &program : plan.programs())
    if (const plan::Routine *routine = findRoutine(program, name))
      for (const plan::Action &action : routine->actions()) count = std::max(count, action.microbatch() + 1);
  return count;
}

int64_t placeOf(const plan::Buffer &buffer, const plan::Program &program, const plan::Fragment &fragment,
                int32_t slot) {
  int64_t begin = buffer.on_host() ? hostMemory : 0;
  if (!buffer.in_slot()) return begin + buffer.offset();
  const plan::SlotRegion &region = program.slot_regions(fragment.slot_region());
  return buffer.offset() + (buffer.on_host() ? begin + region.host_offset() + slot * region.host_bytes()
                                             : region.offset() + slot * region.bytes());
}

void forEachBuffer(google::protobuf::Message &message, const std::function<void(plan::Buffer &)> &visit) {
  if (auto *buffer = dynamic_cast<plan::Buffer *>(&message)) return visit(*buffer);
  const auto *reflection = message.GetReflection();
  std::vector<const google::protobuf::FieldDescriptor *> fields;
  reflection->ListFields(message, &fields);
  for (const auto *field : fields) {
    if (field->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (!field->is_repeated()) {
      forEachBuffer(*reflection->MutableMessage(&message, field), visit);
      continue;
    }
    for (int i = 0; i < reflection->FieldSize(message, field); ++i)
      forEachBuffer(*reflection->MutableRepeatedMessage(&message, field, i), visit);
  }
}

bool usesSlot(const plan::Fragment &fragment) {
  plan::Fragment searched = fragment;
  searched.clear_constants();
  bool uses = false;
  forEachBuffer(searched, [&](plan::Buffer &buffer) { uses |= buffer.in_slot(); });
  return uses;
}

std::string actionName(const plan::Fragment &fragment, int64_t microbatch) {
  const std::string &name = fragment.name();
  size_t dot = name.find('.');
  if (dot == std::string::npos) return fmt::format("{} {}", name, microbatch);
  std::string kind = name.substr(0, dot);
  for (auto [whole, letter] : {std::pair{"forward", "F"}, std::pair{"backward", "B"}, std::pair{"backward_input", "I"},
                               std::pair{"backward_weight", "W"}})
    if (kind == whole) {
      kind = letter;
      break;
    }
  size_t end = name.find('.', dot + 1); // of a variant, "forward.1.last"
  return fmt::format("{} {} stage {}", kind, microbatch, name.substr(dot + 1, end == name.npos ? end : end - dot - 1));
}

} // namespace cleave::runtime
