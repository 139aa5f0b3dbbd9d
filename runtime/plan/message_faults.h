// What keeps a message of plan.proto or graph.proto from being read as it was meant. None: nothing does.
#pragma once
#include <google/protobuf/message.h>
#include <optional>
#include <string>

namespace cleave::runtime {

// "Plan.programs.fragments": a message with fields that this program's descriptors do not have.
std::optional<std::string> unknownFieldIn(const google::protobuf::Message &message);
// "Plan.model_path is '/caf\xe9'": a string that is not UTF-8, which Protocol Buffers write and then refuse to read.
std::optional<std::string> wrongTextIn(const google::protobuf::Message &message);

} // namespace cleave::runtime
