#include "test/fuzz/message_mutator.h"
#include "test/fuzz/target.h"
#include <google/protobuf/stubs/logging.h>
#include <limits>
#include <map>
#include <memory>
#include <vector>

namespace cleave::fuzz {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

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
constexpr double oddNumbers[] = {0,
                                 1,
                                 -1,
                                 0.5,
                                 1e-30,
                                 1e38,
                                 1e300,
                                 std::numeric_limits<double>::infinity(),
                                 std::numeric_limits<double>::quiet_NaN()};
constexpr size_t longestName = 64, mostTexts = 4096;

class Mutator {
public:
  Mutator(Message &root, const MutatorOptions &options, Chance &chance)
      : root(root), options(options), chance(chance), before(root.New()) {
    before->CopyFrom(root);
    collect(*before);
  }

  // From the root down, each step at random, or anywhere: the second alone would rarely touch the few near the root.
  void change() {
    std::vector<Message *> all;
    if (!chance.once(2)) list(root, all);
    changeBelow(all.empty() ? root : *chance.pick(all));
  }

private:
  // Calls `onMessage` with each message that the fields of `message` hold, `onText` with each of their texts.
  template <typename OnMessage, typename OnText>
  static void eachPart(Message &message, OnMessage onMessage, OnText onText) {
    const Reflection &reflection = *message.GetReflection();
    std::vector<const FieldDescriptor *> fields;
    reflection.ListFields(message, &fields);
    for (const FieldDescriptor *field : fields) {
      const int count = field->is_repeated() ? reflection.FieldSize(message, field) : 1;
      for (int i = 0; i < count; ++i)
        if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE)
          onMessage(field->is_repeated() ? *reflection.MutableRepeatedMessage(&message, field, i)
                                         : *reflection.MutableMessage(&message, field));
        else if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING)
          onText(field->is_repeated() ? reflection.GetRepeatedString(message, field, i)
                                      : reflection.GetString(message, field));
    }
  }
  static void list(Message &message, std::vector<Message *> &all) {
    all.push_back(&message);
    eachPart(message, [&](Message &part) { list(part, all); }, [](const std::string &) {});
  }
  void collect(Message &message) {
    byType[message.GetDescriptor()].push_back(&message);
    eachPart(message, [&](Message &part) { collect(part); }, [&](const std::string &text) { keepText(text); });
  }
  void keepText(const std::string &text) {
    if (text.size() <= longestName && texts.size() < mostTexts) texts.push_back(text);
  }

  bool isFixed(const FieldDescriptor &field) const { return options.isFixed && options.isFixed(field); }

  void changeBelow(Message &message) {
    const Descriptor &type = *message.GetDescriptor();
    std::vector<const FieldDescriptor *> fields;
    message.GetReflection()->ListFields(message, &fields);
    std::erase_if(fields, [&](const FieldDescriptor *field) { return isFixed(*field); });
    const FieldDescriptor *field = nullptr;
    if (!fields.empty() && !chance.once(12))
      field = chance.pick(fields);
    else if (type.field_count() > 0)
      field = type.field(int(chance.below(uint64_t(type.field_count()))));
    if (!field || isFixed(*field)) return;
    if (field->is_repeated()) return changeList(message, *field);
    if (chance.once(30)) return message.GetReflection()->ClearField(&message, field);
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) return setNumberOrText(message, *field, -1);
    Message &below = *message.GetReflection()->MutableMessage(&message, field);
    chance.once(10) ? copyFromElsewhere(below) : changeBelow(below);
  }

  void changeList(Message &message, const FieldDescriptor &field) {
    const Reflection &reflection = *message.GetReflection();
    const int size = reflection.FieldSize(message, &field);
    auto anyOf = [&] { return int(chance.below(uint64_t(size))); };
    const bool isMessage = field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    switch (size == 0 ? 3 : chance.below(12)) {
    case 0:
      return reflection.SwapElements(&message, &field, anyOf(), anyOf());
    case 1: // any one goes, the others stay in order
      for (int i = anyOf(); i + 1 < size; ++i) reflection.SwapElements(&message, &field, i, i + 1);
      return reflection.RemoveLast(&message, &field);
    case 2:
    case 3: {
      if (!isMessage) return add(message, field);
      Message &added = *reflection.AddMessage(&message, &field);
      copyFromElsewhere(added);
      for (int i = size, to = size ? anyOf() : 0; i > to && chance.once(2); --i)
        reflection.SwapElements(&message, &field, i, i - 1);
      return;
    }
    default:
      if (isMessage) return changeBelow(*reflection.MutableRepeatedMessage(&message, &field, anyOf()));
      return setNumberOrText(message, field, anyOf());
    }
  }

  // Becomes a copy of another message of its type, if there is one.
  void copyFromElsewhere(Message &message) {
    auto found = byType.find(message.GetDescriptor());
    if (found == byType.end()) return changeBelow(message);
    message.CopyFrom(*chance.pick(found->second));
    if (chance.once(2)) changeBelow(message);
  }

  void add(Message &message, const FieldDescriptor &field) {
    const Reflection &reflection = *message.GetReflection();
    switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection.AddInt32(&message, &field, int32_t(number(0)));
    case FieldDescriptor::CPPTYPE_UINT32:
      return reflection.AddUInt32(&message, &field, uint32_t(number(0)));
    case FieldDescriptor::CPPTYPE_INT64:
      return reflection.AddInt64(&message, &field, number(0));
    case FieldDescriptor::CPPTYPE_UINT64:
      return reflection.AddUInt64(&message, &field, uint64_t(number(0)));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return reflection.AddFloat(&message, &field, float(chance.pick(oddNumbers)));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return reflection.AddDouble(&message, &field, chance.pick(oddNumbers));
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.AddBool(&message, &field, chance.once(2));
    case FieldDescriptor::CPPTYPE_ENUM:
      return reflection.AddEnumValue(&message, &field, enumValue(field));
    case FieldDescriptor::CPPTYPE_STRING:
      return reflection.AddString(&message, &field, text(field, ""));
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return;
    }
  }

  // `at`: of a list; -1: the field is none.
  void setNumberOrText(Message &message, const FieldDescriptor &field, int at) {
    const Reflection &reflection = *message.GetReflection();
    const bool lone = at < 0;
    auto change = [&](auto get, auto getOf, auto set, auto setOf, auto changed) {
      if (lone)
        (reflection.*set)(&message, &field, changed((reflection.*get)(message, &field)));
      else
        (reflection.*setOf)(&message, &field, at, changed((reflection.*getOf)(message, &field, at)));
    };
    auto near = [&](auto now) { return static_cast<decltype(now)>(number(static_cast<int64_t>(now))); };
    auto odd = [&](auto now) { return static_cast<decltype(now)>(chance.once(2) ? chance.pick(oddNumbers) : now * 2); };
    using R = Reflection;
    switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return change(&R::GetInt32, &R::GetRepeatedInt32, &R::SetInt32, &R::SetRepeatedInt32, near);
    case FieldDescriptor::CPPTYPE_UINT32:
      return change(&R::GetUInt32, &R::GetRepeatedUInt32, &R::SetUInt32, &R::SetRepeatedUInt32, near);
    case FieldDescriptor::CPPTYPE_INT64:
      return change(&R::GetInt64, &R::GetRepeatedInt64, &R::SetInt64, &R::SetRepeatedInt64, near);
    case FieldDescriptor::CPPTYPE_UINT64:
      return change(&R::GetUInt64, &R::GetRepeatedUInt64, &R::SetUInt64, &R::SetRepeatedUInt64, near);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return change(&R::GetFloat, &R::GetRepeatedFloat, &R::SetFloat, &R::SetRepeatedFloat, odd);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return change(&R::GetDouble, &R::GetRepeatedDouble, &R::SetDouble, &R::SetRepeatedDouble, odd);
    case FieldDescriptor::CPPTYPE_BOOL:
      return change(&R::GetBool, &R::GetRepeatedBool, &R::SetBool, &R::SetRepeatedBool, [](bool now) { return !now; });
    case FieldDescriptor::CPPTYPE_ENUM:
      return change(&R::GetEnumValue, &R::GetRepeatedEnumValue, &R::SetEnumValue, &R::SetRepeatedEnumValue,
                    [&](int) { return enumValue(field); });
    case FieldDescriptor::CPPTYPE_STRING:
      return change(&R::GetString, &R::GetRepeatedString, &R::SetString, &R::SetRepeatedString,
                    [&](const std::string &now) { return text(field, now); });
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return;
    }
  }

  int enumValue(const FieldDescriptor &field) {
    const auto &type = *field.enum_type();
    if (chance.once(20)) return int(chance.below(256)) - 1;
    return type.value(int(chance.below(uint64_t(type.value_count()))))->number();
  }

  // Near what it was, mostly: far numbers are refused early.
  int64_t number(int64_t now) {
    if (chance.once(2)) return chance.pick(extremes);
    if (chance.once(8)) return int64_t(chance.once(2) ? uint64_t(now) * 2 : uint64_t(now / 2));
    const uint64_t step = uint64_t(chance.pick(extremes)) & 127;
    return int64_t(chance.once(2) ? uint64_t(now) + step : uint64_t(now) - step);
  }

  std::string text(const FieldDescriptor &field, const std::string &now) {
    if (options.word && chance.once(2))
      if (std::string word = options.word(field, chance); !word.empty()) return word;
    if (!texts.empty() && !chance.once(4)) return chance.pick(texts);
    constexpr const char *words[] = {"", "../../etc/passwd", "\x1b[31m", "x"};
    if (chance.once(4)) return chance.pick(words);
    std::string changed = now;
    changed.resize(now.size() + 8);
    changed.resize(LLVMFuzzerMutate(reinterpret_cast<uint8_t *>(changed.data()), now.size(), changed.size()));
    if (field.type() == FieldDescriptor::TYPE_STRING) // UTF-8, or the message could not be read again
      for (char &letter : changed) letter = static_cast<char>(letter & 0x7f);
    return changed;
  }

  Message &root;
  const MutatorOptions &options;
  Chance &chance;
  std::unique_ptr<Message> before; // where copies and texts come from
  std::map<const Descriptor *, std::vector<const Message *>> byType;
  std::vector<std::string> texts;
};

} // namespace
} // namespace cleave::fuzz

// Called by libFuzzer before all: texts that are no UTF-8 are refused by whoever reads the message, not told here.
extern "C" int LLVMFuzzerInitialize(int *, char ***) {
  google::protobuf::SetLogHandler(nullptr);
  return 0;
}

namespace cleave::fuzz {

void changeMessage(Message &message, const MutatorOptions &options, Chance &chance) {
  // Each change looks the message over again: the one before may have removed a part.
  for (uint64_t i = 0, count = 1 + chance.below(3); i < count; ++i) Mutator(message, options, chance).change();
}

size_t mutateMessage(Message &message, const MutatorOptions &options, uint8_t *data, size_t size, size_t maxSize,
                     unsigned seed) {
  Chance chance(uint64_t{seed});
  message.Clear();
  if (chance.once(16) || !message.ParseFromArray(data, int(size))) return LLVMFuzzerMutate(data, size, maxSize);
  changeMessage(message, options, chance);
  const size_t changed = message.ByteSizeLong();
  if (changed > maxSize || !message.SerializeToArray(data, int(changed))) return LLVMFuzzerMutate(data, size, maxSize);
  return changed;
}

} // namespace cleave::fuzz
