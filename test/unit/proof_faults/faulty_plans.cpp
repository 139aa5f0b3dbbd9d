// Faults for the proof: each changes a plan in one place. What the static verifier or the proof does not refuse must
// compute the same numbers when it runs beside the unsplit step.
//
//   proof_faults COUNT X.plan Y.plan ...      seeds 0 to COUNT - 1, the plans in turn; status 1: a fault was missed
#include "runtime/check/proof/prove.h"
#include "runtime/check/verify/compare.h"
#include "runtime/plan/plan_file.h"
#include "runtime/plan/verify/verify.h"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>
#include <functional>
#include <map>
#include <random>

namespace cleave {
namespace {

using Random = std::mt19937_64;
template <typename List> auto *any(List *list, Random &random) {
  return list->empty() ? nullptr : list->Mutable(static_cast<int>(random() % static_cast<uint64_t>(list->size())));
}

// A command of some kind, anywhere; null after many tries.
plan::Command *anyCommand(plan::Plan &plan, Random &random, const std::function<bool(const plan::Command &)> &fits,
                          plan::Fragment **of = nullptr) {
  for (int attempt = 0; attempt < 400; ++attempt) {
    plan::Program *program = any(plan.mutable_programs(), random);
    plan::Fragment *fragment = any(program->mutable_fragments(), random);
    plan::Command *command = any(fragment->mutable_commands(), random);
    if (!command || !fits(*command)) continue;
    if (of) *of = fragment;
    return command;
  }
  return nullptr;
}
bool sameType(const plan::Buffer &a, const plan::Buffer &b) {
  return a.dtype() == b.dtype() && std::equal(a.shape().begin(), a.shape().end(), b.shape().begin(), b.shape().end());
}
plan::Buffer *anotherBuffer(plan::Plan &plan, Random &random, const plan::Buffer &like) {
  for (int attempt = 0; attempt < 400; ++attempt) {
    plan::Command *command = anyCommand(plan, random, [](const plan::Command &c) { return c.has_launch(); });
    plan::Buffer *buffer = command ? any(command->mutable_launch()->mutable_buffers(), random) : nullptr;
    if (buffer && sameType(*buffer, like) && buffer->offset() != like.offset()) return buffer;
  }
  return nullptr;
}

// Nothing to change of that kind: false.
using Fault = std::function<bool(plan::Plan &, Random &)>;
using Command = plan::Command;

// On a collective that fits.
Fault ofCollective(const std::function<bool(plan::Plan &, plan::Collective &, Random &)> &change) {
  return [=](plan::Plan &plan, Random &random) {
    Command *command = anyCommand(plan, random, [](const Command &c) { return c.has_collective(); });
    return command && change(plan, *command->mutable_collective(), random);
  };
}
Fault ofCopy(const std::function<bool(plan::Copy &, Random &)> &change) {
  return [=](plan::Plan &plan, Random &random) {
    Command *command = anyCommand(plan, random, [](const Command &c) { return c.has_copy(); });
    return command && change(*command->mutable_copy(), random);
  };
}
Fault ofContract(const std::function<bool(plan::Contract &, Random &)> &change) {
  return [=](plan::Plan &plan, Random &random) {
    Command *command = anyCommand(plan, random, [](const Command &c) { return c.has_contract(); });
    return command && change(*command->mutable_contract(), random);
  };
}
Fault ofGrouped(const std::function<bool(plan::GroupedContract &, Random &)> &change) {
  return [=](plan::Plan &plan, Random &random) {
    Command *command = anyCommand(plan, random, [](const Command &c) { return c.has_grouped_contract(); });
    return command && change(*command->mutable_grouped_contract(), random);
  };
}
// On a product that ends as asked.
Fault ofEpilogue(const std::function<bool(const plan::Contract &)> &fits,
                 const std::function<void(plan::Contract &)> &change) {
  return [=](plan::Plan &plan, Random &random) {
    Command *command =
        anyCommand(plan, random, [&](const Command &c) { return c.has_contract() && fits(c.contract()); });
    if (command) change(*command->mutable_contract());
    return command != nullptr;
  };
}
Fault ofAttention(const std::function<bool(plan::Attention &)> &change) {
  return [=](plan::Plan &plan, Random &random) {
    Command *command = anyCommand(plan, random, [](const Command &c) { return c.has_attention(); });
    return command && change(*command->mutable_attention());
  };
}
Fault ofLaunch(const std::function<bool(plan::Plan &, plan::Launch &, Random &)> &change) {
  return [=](plan::Plan &plan, Random &random) {
    Command *command = anyCommand(plan, random, [](const Command &c) { return c.has_launch(); });
    return command && change(plan, *command->mutable_launch(), random);
  };
}
// On two actions of one routine.
Fault ofActions(const std::function<bool(plan::Action &, plan::Action &)> &change) {
  return [=](plan::Plan &plan, Random &random) {
    plan::Routine *routine = any(any(plan.mutable_programs(), random)->mutable_routines(), random);
    return routine && !routine->actions().empty() &&
           change(*any(routine->mutable_actions(), random), *any(routine->mutable_actions(), random));
  };
}

template <typename Field> bool swapTwo(Field *values) {
  for (int i = 0; i + 1 < values->size(); ++i)
    if (values->Get(i) != values->Get(i + 1)) {
      values->SwapElements(i, i + 1);
      return true;
    }
  return false;
}

const std::map<std::string, Fault> &faults() {
  static const std::map<std::string, Fault> all = {
      {"command dropped",
       [](plan::Plan &plan, Random &random) {
         plan::Fragment *fragment;
         Command *command = anyCommand(plan, random, [](const Command &c) { return c.record_event() == 0; }, &fragment);
         if (!command) return false;
         for (int i = 0; i < fragment->commands_size(); ++i)
           if (command == &fragment->commands(i)) {
             fragment->mutable_commands()->DeleteSubrange(i, 1);
             return true;
           }
         return false;
       }},
      {"command doubled",
       [](plan::Plan &plan, Random &random) {
         plan::Fragment *fragment;
         Command *command = anyCommand(plan, random, [](const Command &c) { return c.record_event() == 0; }, &fragment);
         if (!command) return false;
         const Command again = *command;
         *fragment->add_commands() = again;
         for (int i = fragment->commands_size() - 1; i > 0 && &fragment->commands(i - 1) != command; --i)
           fragment->mutable_commands()->SwapElements(i, i - 1);
         return true;
       }},
      {"two commands swapped",
       [](plan::Plan &plan, Random &random) {
         plan::Fragment *fragment = any(any(plan.mutable_programs(), random)->mutable_fragments(), random);
         if (fragment->commands_size() < 2) return false;
         const int i = static_cast<int>(random() % static_cast<uint64_t>(fragment->commands_size() - 1));
         fragment->mutable_commands()->SwapElements(i, i + 1);
         return true;
       }},
      {"wait dropped",
       [](plan::Plan &plan, Random &random) {
         Command *command = anyCommand(plan, random, [](const Command &c) { return c.wait_events_size() > 0; });
         if (command) command->mutable_wait_events()->RemoveLast();
         return command != nullptr;
       }},
      {"collective with max", ofCollective([](plan::Plan &, plan::Collective &c, Random &) {
         const bool reduces = c.op() == plan::Collective::ALL_REDUCE || c.op() == plan::Collective::REDUCE_SCATTER;
         c.set_reduce(c.reduce() == plan::Collective::SUM ? plan::Collective::MAX : plan::Collective::SUM);
         return reduces;
       })},
      {"collective over another axis", ofCollective([](plan::Plan &plan, plan::Collective &c, Random &random) {
         const std::string axis = any(plan.mutable_mesh()->mutable_axes(), random)->name();
         if (c.axes_size() == 0 || c.axes(0) == axis) return false;
         c.clear_axes();
         c.add_axes(axis);
         return true;
       })},
      {"sum is a broadcast", ofCollective([](plan::Plan &, plan::Collective &c, Random &) {
         if (c.op() != plan::Collective::ALL_REDUCE) return false;
         c.set_op(plan::Collective::BROADCAST);
         return true;
       })},
      // A mean over what a device counted itself: right only where all devices count the same.
      {"a device's own count",
       [](plan::Plan &plan, Random &random) {
         plan::Fragment *fragment;
         Command *command = anyCommand(
             plan, random,
             [](const Command &c) {
               return c.phase() == "forward" && c.has_collective() &&
                      c.collective().op() == plan::Collective::ALL_REDUCE && c.collective().inputs_size() == 1 &&
                      c.collective().bytes() == 4;
             },
             &fragment);
         if (!command) return false;
         const plan::Collective sum = command->collective();
         plan::Copy &own = *command->mutable_copy();
         *own.mutable_source() = sum.inputs(0);
         *own.mutable_target() = sum.outputs(0);
         own.add_sizes(1), own.add_source_strides(1), own.add_target_strides(1);
         for (Command &later : *fragment->mutable_commands())
           if (later.has_collective() && std::ranges::equal(later.collective().axes(), sum.axes()) &&
               later.collective().sequence() > sum.sequence())
             later.mutable_collective()->set_sequence(later.collective().sequence() - 1);
         return true;
       }},
      {"collective's parts swapped", ofCollective([](plan::Plan &, plan::Collective &c, Random &) {
         for (int i = 0; i + 1 < c.inputs_size(); ++i)
           if (sameType(c.inputs(i), c.inputs(i + 1))) {
             c.mutable_inputs()->SwapElements(i, i + 1);
             return true;
           }
         return false;
       })},
      {"collective reads another buffer", ofCollective([](plan::Plan &plan, plan::Collective &c, Random &random) {
         plan::Buffer *input = any(c.mutable_inputs(), random), *other = anotherBuffer(plan, random, *input);
         if (other) *input = plan::Buffer(*other);
         return other != nullptr;
       })},
      {"collective along another dimension", ofCollective([](plan::Plan &, plan::Collective &c, Random &) {
         if (c.dims_size() == 0 || c.inputs(0).shape_size() < 2) return false;
         c.set_dims(0, 1 - std::min<int64_t>(1, c.dims(0)));
         return true;
       })},
      {"copy from another place", ofCopy([](plan::Copy &c, Random &) {
         c.mutable_source_offset()->set_base(c.source_offset().base() + 1);
         return true;
       })},
      {"copy's part of another device", ofCopy([](plan::Copy &c, Random &) {
         if (c.source_offset().terms_size() == 0) return false;
         c.mutable_source_offset()->clear_terms();
         return true;
       })},
      {"copy to another place", ofCopy([](plan::Copy &c, Random &) {
         c.mutable_target_offset()->set_base(std::max<int64_t>(0, c.target_offset().base() - 1));
         return true;
       })},
      {"copy's strides swapped", ofCopy([](plan::Copy &c, Random &) { return swapTwo(c.mutable_source_strides()); })},
      {"product's left strides swapped", ofContract([](plan::Contract &c, Random &) { return swapTwo(c.mutable_lhs_strides()); })},
      {"product's right strides swapped", ofContract([](plan::Contract &c, Random &) { return swapTwo(c.mutable_rhs_strides()); })},
      {"product adds, or does not", ofContract([](plan::Contract &c, Random &) {
         c.set_accumulate(!c.accumulate());
         return true;
       })},
      {"product of fewer terms", ofContract([](plan::Contract &c, Random &) {
         c.set_k(c.k() - 1);
         return c.k() > 0;
       })},
      {"product of another place", ofContract([](plan::Contract &c, Random &) {
         c.mutable_lhs()->set_offset(c.lhs().offset() + 64);
         return true;
       })},
      {"product to another place", ofContract([](plan::Contract &c, Random &) {
         c.mutable_out()->set_offset(std::max<int64_t>(0, c.out().offset() - 64));
         return true;
       })},
      {"product without its bias", ofEpilogue([](const plan::Contract &c) { return c.has_bias(); },
                                              [](plan::Contract &c) { c.clear_bias(); })},
      {"product without its activation", ofEpilogue([](const plan::Contract &c) { return c.activation() != plan::Contract::NONE; },
                                                    [](plan::Contract &c) {
                                                      c.clear_activation();
                                                      c.clear_pre_activation();
                                                    })},
      {"activation's gradient elsewhere", ofEpilogue([](const plan::Contract &c) { return c.activation() == plan::Contract::GELU_GRADIENT; },
                                                     [](plan::Contract &c) { *c.mutable_pre_activation() = plan::Buffer(c.out()); })},
      {"sum of an operand over other elements", ofEpilogue([](const plan::Contract &c) { return c.has_lhs_sum() || c.has_rhs_sum(); },
                                                           [](plan::Contract &c) {
                                                             plan::Buffer &sum = c.has_lhs_sum() ? *c.mutable_lhs_sum() : *c.mutable_rhs_sum();
                                                             sum.set_offset(sum.offset() + 64);
                                                           })},
      {"attention of another scale", ofAttention([](plan::Attention &a) {
         a.set_scale(a.scale() / 2);
         return true;
       })},
      {"attention sees all positions, or not", ofAttention([](plan::Attention &a) {
         if (a.has_right_bound())
           a.clear_right_bound();
         else
           a.set_right_bound(0);
         return true;
       })},
      {"attention's keys are its queries", ofAttention([](plan::Attention &a) {
         if (a.key().offset() == a.query().offset()) return false;
         *a.mutable_key() = plan::Buffer(a.query());
         *a.mutable_key_strides() = a.query_strides();
         return true;
       })},
      {"attention's gradients swapped", ofAttention([](plan::Attention &a) {
         if (!a.has_key_gradient()) return false;
         a.mutable_key_gradient()->Swap(a.mutable_value_gradient());
         return true;
       })},
      {"kernel's operands swapped", ofLaunch([](plan::Plan &, plan::Launch &l, Random &) {
         for (int i = 0; i + 1 < l.buffers_size(); ++i)
           if (sameType(l.buffers(i), l.buffers(i + 1)) && l.buffers(i).offset() != l.buffers(i + 1).offset()) {
             l.mutable_buffers()->SwapElements(i, i + 1);
             return true;
           }
         return false;
       })},
      {"kernel of another buffer", ofLaunch([](plan::Plan &plan, plan::Launch &l, Random &random) {
         plan::Buffer *input = any(l.mutable_buffers(), random), *other = anotherBuffer(plan, random, *input);
         if (other) *input = plan::Buffer(*other);
         return other != nullptr;
       })},
      {"kernel's result elsewhere", ofLaunch([](plan::Plan &, plan::Launch &l, Random &) {
         plan::Buffer &result = *l.mutable_buffers(l.buffers_size() - 1);
         result.set_offset(std::max<int64_t>(0, result.offset() - 64));
         return true;
       })},
      {"kernel counts from elsewhere", ofLaunch([](plan::Plan &, plan::Launch &l, Random &) {
         if (l.scalars_size() == 0) return false;
         l.mutable_scalars(0)->set_base(l.scalars(0).base() + 1);
         return true;
       })},
      {"another kernel", ofLaunch([](plan::Plan &plan, plan::Launch &l, Random &random) {
         l.set_kernel(static_cast<int32_t>(random() % static_cast<uint64_t>(plan.kernels_size())));
         return true;
       })},
      {"another fill",
       [](plan::Plan &plan, Random &random) {
         Command *command = anyCommand(plan, random, [](const Command &c) { return c.has_fill(); });
         if (command) command->mutable_fill()->mutable_value()->back() ^= 0x40;
         return command != nullptr;
       }},
      {"rows counted from elsewhere",
       [](plan::Plan &plan, Random &random) {
         Command *command =
             anyCommand(plan, random, [](const Command &c) { return c.has_gather() || c.has_scatter_add(); });
         if (!command) return false;
         auto *start = command->has_gather() ? command->mutable_gather()->mutable_start()
                                             : command->mutable_scatter_add()->mutable_start();
         start->set_base(start->base() + 1);
         return true;
       }},
      {"groups counted from elsewhere", ofGrouped([](plan::GroupedContract &c, Random &) {
         c.mutable_start()->set_base(c.start().base() + 1);
         c.set_global_groups(c.global_groups() + 1);
         return true;
       })},
      {"grouped product of transposed matrices", ofGrouped([](plan::GroupedContract &c, Random &) {
         if (c.sums_rows()) return false;
         c.set_transposed(!c.transposed());
         return true;
       })},
      {"grouped product of other rows", ofGrouped([](plan::GroupedContract &c, Random &) {
         if (c.rows_size() == 0 || c.rows(0) < 2) return false;
         c.set_lhs_strides(0, 0);
         return true;
       })},
      {"another decay",
       [](plan::Plan &plan, Random &random) {
         plan::HostScalar *scalar = any(any(plan.mutable_programs(), random)->mutable_host_scalars(), random);
         if (!scalar || scalar->kind() != plan::HostScalar::ONE_MINUS_POWER) return false;
         scalar->set_base(scalar->base() / 2);
         return true;
       }},
      {"another learning rate's place",
       [](plan::Plan &plan, Random &random) {
         plan::HostScalar *scalar = any(any(plan.mutable_programs(), random)->mutable_host_scalars(), random);
         if (!scalar) return false;
         scalar->set_kind(scalar->kind() == plan::HostScalar::LEARNING_RATE ? plan::HostScalar::ONE_MINUS_POWER
                                                                            : plan::HostScalar::LEARNING_RATE);
         return true;
       }},
      {"parameters change places",
       [](plan::Plan &plan, Random &random) {
         plan::Parameter *a = any(plan.mutable_parameters(), random), *b = any(plan.mutable_parameters(), random);
         if (a == b || a->dtype() != b->dtype() || a->pp_coordinates_size() || b->pp_coordinates_size() ||
             !std::equal(a->shape().begin(), a->shape().end(), b->shape().begin(), b->shape().end()))
           return false;
         const int64_t offset = a->offset();
         a->set_offset(b->offset());
         b->set_offset(offset);
         return true;
       }},
      {"input split over another axis",
       [](plan::Plan &plan, Random &random) {
         plan::Fragment *fragment = any(any(plan.mutable_programs(), random)->mutable_fragments(), random);
         plan::InputBinding *input = any(fragment->mutable_inputs(), random);
         if (!input || input->dims_size() == 0 || input->dims(0).axes_size() == 0) return false;
         input->mutable_dims(0)->set_axes(0, any(plan.mutable_mesh()->mutable_axes(), random)->name());
         return true;
       }},
      {"action of another microbatch", ofActions([](plan::Action &a, plan::Action &b) {
         if (a.microbatch() == b.microbatch()) return false;
         a.set_microbatch(b.microbatch());
         return true;
       })},
      {"action in another slot", ofActions([](plan::Action &a, plan::Action &b) {
         if (a.slot() == b.slot()) return false;
         a.set_slot(b.slot());
         return true;
       })},
      {"another action", ofActions([](plan::Action &a, plan::Action &b) {
         if (a.fragment() == b.fragment()) return false;
         a.set_fragment(b.fragment());
         return true;
       })},
      {"sends another buffer",
       [](plan::Plan &plan, Random &random) {
         Command *command = anyCommand(plan, random, [](const Command &c) {
           return c.has_transfer() && c.transfer().direction() == plan::Transfer::SEND;
         });
         plan::Buffer *other = command ? anotherBuffer(plan, random, command->transfer().buffer()) : nullptr;
         if (other) *command->mutable_transfer()->mutable_buffer() = plan::Buffer(*other);
         return other != nullptr;
       }},
  };
  return all;
}

struct Counts {
  int made = 0, refusedBefore = 0, refused = 0, same = 0, missed = 0;
};

int run(int count, const std::vector<plan::Plan> &plans) {
  std::map<std::string, Counts> counts;
  Counts all;
  for (int seed = 0; seed < count; ++seed) {
    auto kind = std::next(faults().begin(), seed % static_cast<int>(faults().size()));
    Random random(static_cast<uint64_t>(seed));
    plan::Plan plan;
    bool isMade = false;
    for (size_t attempt = 0; attempt < 4 * plans.size() && !isMade; ++attempt) {
      plan = plans[(static_cast<size_t>(seed) / faults().size() + attempt) % plans.size()];
      isMade = kind->second(plan, random);
    }
    if (!isMade) continue;
    Counts one{.made = 1};
    if (!runtime::verifyPlan(plan))
      one.refusedBefore = 1;
    else if (auto proof = proof::prove(plan); !proof || proof->outcome != proof::Proof::Proved)
      one.refused = 1;
    else if (auto seen = runtime::comparePlan(plan, {}); seen && seen->agrees())
      one.same = 1;
    else
      one.missed = 1,
      fmt::print("MISSED: seed {}, {}: {}\n", seed, kind->first, seen ? seen->faults.front() : seen.status().message());
    for (Counts *sum : {&all, &counts[kind->first]}) {
      sum->made += one.made, sum->refusedBefore += one.refusedBefore, sum->refused += one.refused;
      sum->same += one.same, sum->missed += one.missed;
    }
  }
  auto show = [](const std::string &name, const Counts &c) {
    fmt::print(
        "{:36} {:4} made, {:4} refused by the static verifier, {:4} by the proof, {:3} compute the same, {} missed\n",
        name, c.made, c.refusedBefore, c.refused, c.same, c.missed);
  };
  for (const auto &[name, c] : counts) show(name, c);
  show(fmt::format("{} kinds", counts.size()), all);
  return all.missed == 0 ? 0 : 1;
}

} // namespace
} // namespace cleave

int main(int count, char **arguments) {
  std::vector<cleave::plan::Plan> plans;
  for (int i = 2; i < count; ++i) {
    auto plan = cleave::runtime::readPlanFile(arguments[i]);
    if (!plan) {
      fmt::print(stderr, "{}\n", plan.status().message());
      return 2;
    }
    // Where nothing is proved, a refusal says nothing.
    if (auto proof = cleave::proof::prove(*plan); !proof || proof->outcome != cleave::proof::Proof::Proved) {
      fmt::print(stderr, "{}: is not proved without a fault\n", arguments[i]);
      return 2;
    }
    plans.push_back(std::move(*plan));
  }
  if (plans.empty()) return 2;
  return cleave::run(std::atoi(arguments[1]), plans);
}
