// Plans with random fields changed, dropped or doubled, and right checksums: the static verifier takes them or says
// what is wrong. kernel_object is left alone: it is native code, which nobody can check, and nothing here loads it.
//
// The plans that it starts from are those of $CLEAVE_FUZZ_PLANS (a folder), as test/run compiles them.
#include "runtime/plan/plan_file.h"
#include "runtime/plan/verify.h"
#include "test/fuzz/runner.h"
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <google/protobuf/message.h>
#include <limits>
#include <vector>

namespace cleave::fuzz {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr int64_t extremes[] = {-1,
                                0,
                                1,
                                2,
                                3,
                                7,
                                16,
                                64,
                                1 << 20,
                                (1LL << 31) - 1,
                                1LL << 32,
                                1LL << 40,
                                1LL << 62,
                                std::numeric_limits<int64_t>::min(),
                                std::numeric_limits<int64_t>::max()};

class Mutator {
public:
  explicit Mutator(uint64_t seed) : chance(seed) {}

  // Changes one field of the message or of one below it; the way down is random, so that no part is out of reach.
  void change(Message &message) {
    const auto *descriptor = message.GetDescriptor();
    const auto *reflection = message.GetReflection();
    std::vector<const FieldDescriptor *> fields;
    reflection->ListFields(message, &fields);
    std::erase_if(fields, [](const FieldDescriptor *field) {
      return field->name() == "kernel_object" || field->name() == "cubin" || field->name() == "ptx";
    });
    const FieldDescriptor *field = !fields.empty() && !chance.once(20)
                                       ? chance.pick(fields)
                                       : descriptor->field(int(chance.below(uint64_t(descriptor->field_count()))));
    if (field->name() == "kernel_object") return;
    if (field->is_repeated()) return changeRepeated(message, field);
    if (chance.once(40)) return reflection->ClearField(&message, field);
    switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection->SetInt32(&message, field, int32_t(number(reflection->GetInt32(message, field))));
    case FieldDescriptor::CPPTYPE_INT64:
      return reflection->SetInt64(&message, field, number(reflection->GetInt64(message, field)));
    case FieldDescriptor::CPPTYPE_UINT64:
      return reflection->SetUInt64(&message, field, uint64_t(number(0)));
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection->SetBool(&message, field, !reflection->GetBool(message, field));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return reflection->SetDouble(&message, field,
                                   chance.once(2) ? std::numeric_limits<double>::quiet_NaN() : double(number(1)));
    case FieldDescriptor::CPPTYPE_ENUM:
      return reflection->SetEnumValue(&message, field, int(chance.below(16)));
    case FieldDescriptor::CPPTYPE_STRING:
      return reflection->SetString(&message, field, text(reflection->GetString(message, field)));
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return change(*reflection->MutableMessage(&message, field));
    default:
      return;
    }
  }

private:
  void changeRepeated(Message &message, const FieldDescriptor *field) {
    const auto *reflection = message.GetReflection();
    int size = reflection->FieldSize(message, field);
    bool isMessage = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    if (size > 1 && chance.once(10))
      return reflection->SwapElements(&message, field, int(chance.below(uint64_t(size))),
                                      int(chance.below(uint64_t(size))));
    if (size > 0 && chance.once(10)) return reflection->RemoveLast(&message, field);
    if (isMessage && size > 0 && chance.once(10))
      return reflection->AddMessage(&message, field)
          ->CopyFrom(reflection->GetRepeatedMessage(message, field, int(chance.below(uint64_t(size)))));
    int at = size ? int(chance.below(uint64_t(size))) : 0;
    if (isMessage)
      return change(size ? *reflection->MutableRepeatedMessage(&message, field, at)
                         : *reflection->AddMessage(&message, field));
    switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return size ? reflection->SetRepeatedInt32(&message, field, at,
                                                 int32_t(number(reflection->GetRepeatedInt32(message, field, at))))
                  : reflection->AddInt32(&message, field, int32_t(number(0)));
    case FieldDescriptor::CPPTYPE_INT64:
      return size ? reflection->SetRepeatedInt64(&message, field, at,
                                                 number(reflection->GetRepeatedInt64(message, field, at)))
                  : reflection->AddInt64(&message, field, number(0));
    case FieldDescriptor::CPPTYPE_STRING:
      return size ? reflection->SetRepeatedString(&message, field, at,
                                                  text(reflection->GetRepeatedString(message, field, at)))
                  : reflection->AddString(&message, field, text(""));
    default:
      return;
    }
  }

  // Near what it was, mostly: far numbers are refused early.
  int64_t number(int64_t now) {
    if (chance.once(2)) return chance.pick(extremes);
    auto step = int64_t(chance.pick(extremes) & 127);
    return int64_t(chance.once(2) ? uint64_t(now) + uint64_t(step) : uint64_t(now) - uint64_t(step));
  }
  std::string text(const std::string &now) {
    constexpr const char *words[] = {
        "", "dp", "pp", "tp", "step", "fill", "drain", "evaluate", "../../etc/passwd", "\x1b[31m"};
    return chance.once(2) || now.empty() ? chance.pick(words) : now + "x";
  }

  Chance chance;
};

const std::vector<plan::Plan> &startingPlans() {
  static const std::vector<plan::Plan> plans = [] {
    std::vector<std::filesystem::path> paths;
    const char *folder = std::getenv("CLEAVE_FUZZ_PLANS");
    for (const auto &entry : std::filesystem::directory_iterator(folder ? folder : "."))
      if (entry.path().extension() == ".plan") paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());
    std::vector<plan::Plan> read;
    for (const auto &path : paths)
      if (auto plan = runtime::readPlanFile(path.string())) read.push_back(std::move(*plan));
    return read;
  }();
  return plans;
}

std::string check(uint64_t seed) {
  if (startingPlans().empty()) return "there is no plan in the folder of CLEAVE_FUZZ_PLANS";
  Chance chance(seed);
  plan::Plan plan = startingPlans()[chance.below(startingPlans().size())];
  Mutator mutator(seed ^ 0x9e3779b97f4a7c15);
  for (uint64_t i = 0, count = 1 + chance.below(3); i < count; ++i) mutator.change(plan);
  auto bytes = runtime::encodePlan(plan);
  if (!bytes) return "";
  setInput(*bytes);
  auto read = runtime::decodePlan(*bytes, "mutant");
  if (!read) return "";
  Status verified = runtime::verifyPlan(*read);
  if (verified) countTaken();
  return !verified && verified.message().empty() ? "is refused without a word" : "";
}

} // namespace
} // namespace cleave::fuzz

int main(int argc, char **argv) { return cleave::fuzz::main(argc, argv, "plans", cleave::fuzz::check); }
