#include "runtime/plan/message_faults.h"
#include "runtime/base/printable.h"
#include <fmt/format.h>

namespace cleave::runtime {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using Ask = std::optional<std::string> (*)(const Message &, const FieldDescriptor *, int); // a field's entry, or null

// The first fault of a message or of those in it, with the path to it.
std::optional<std::string> find(const Message &message, Ask ask) {
  if (auto fault = ask(message, nullptr, 0)) return fault;
  const google::protobuf::Reflection &of = *message.GetReflection();
  const google::protobuf::Descriptor &type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor *field = type.field(i);
    const bool isMessage = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    if (!isMessage && field->type() != FieldDescriptor::TYPE_STRING) continue;
    const int count = field->is_repeated() ? of.FieldSize(message, field) : of.HasField(message, field);
    for (int k = 0; k < count; ++k)
      if (auto fault = !isMessage             ? ask(message, field, k)
                       : field->is_repeated() ? find(of.GetRepeatedMessage(message, field, k), ask)
                                              : find(of.GetMessage(message, field), ask))
        return "." + field->name() + *fault;
  }
  return std::nullopt;
}

std::optional<std::string> named(const Message &message, std::optional<std::string> fault) {
  return fault ? std::optional(message.GetDescriptor()->name() + *fault) : std::nullopt;
}

} // namespace

std::optional<std::string> unknownFieldIn(const Message &message) {
  return named(message, find(message, [](const Message &one, const FieldDescriptor *, int) {
                 const bool isKnown = one.GetReflection()->GetUnknownFields(one).empty();
                 return isKnown ? std::nullopt : std::optional<std::string>("");
               }));
}

std::optional<std::string> wrongTextIn(const Message &message) {
  return named(message, find(message, [](const Message &one, const FieldDescriptor *field, int k) {
                 if (!field) return std::optional<std::string>();
                 const google::protobuf::Reflection &of = *one.GetReflection();
                 const std::string text =
                     field->is_repeated() ? of.GetRepeatedString(one, field, k) : of.GetString(one, field);
                 return isUtf8(text) ? std::nullopt : std::optional(fmt::format(" is '{}'", printable(text)));
               }));
}

} // namespace cleave::runtime
