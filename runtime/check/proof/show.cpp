// Indices and terms as text, for counterexamples.
#include "runtime/check/proof/store.h"
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::proof {

std::string Store::show(Index index) const {
  const IndexNode &from = node(index);
  std::string text;
  for (auto [part, factor] : from.terms) {
    const AtomNode &inner = atom(part);
    if (!text.empty())
      text += factor < 0 ? " - " : " + ";
    else if (factor < 0)
      text += "-";
    if (std::abs(factor) != 1) text += std::to_string(std::abs(factor)) + " ";
    switch (inner.kind) {
    case AtomNode::Var: {
      static const char *const letters[] = {"i", "k", "k", "p", "c", "microbatch "};
      text += letters[static_cast<int>(inner.variable)];
      text += inner.number == anyMicrobatch ? "m" : std::to_string(inner.number);
      break;
    }
    case AtomNode::Quotient:
      text += "(" + show(inner.of) + ") / " + std::to_string(inner.size);
      break;
    case AtomNode::Remainder:
      text += "(" + show(inner.of) + ") % " + std::to_string(inner.size);
      break;
    case AtomNode::Row:
      text += "row(" + show(inner.term, 1) + ")";
      break;
    }
  }
  if (from.constant != 0 || text.empty())
    text += (text.empty()        ? ""
             : from.constant < 0 ? " - "
                                 : " + ") +
            std::to_string(text.empty() ? from.constant : std::abs(from.constant));
  return text;
}

std::string Store::show(Term t, int levels) const {
  const TermNode &from = term(t);
  const DefinitionNode &made = definitionOf(t);
  std::string at;
  for (Index argument : from.arguments) at += (at.empty() ? "" : ", ") + show(argument);
  switch (made.kind) {
  case Kind::Leaf:
    return from.arguments.empty() ? made.name : made.name + "[" + at + "]";
  case Kind::Number:
    return fmt::format("{}", made.number);
  case Kind::Index:
    return "index(" + at + ")";
  case Kind::Table:
    return fmt::format("table {}[{}]", fmt::join(made.numbers, " "), at);
  case Kind::Inside:
    return fmt::format("[{} in {}..{}]", at, made.low == -unbounded ? "" : std::to_string(made.low),
                       made.high == unbounded ? "" : std::to_string(made.high));
  default:
    break;
  }
  if (levels == 0) return fmt::format("#{}[{}]", static_cast<int>(from.definition), at);
  auto *self = const_cast<Store *>(this); // opening makes terms, and changes unbounded
  std::vector<Atom> over;
  const std::vector<Term> children = self->open(t, &over);
  std::string text;
  for (size_t i = 0; i < children.size(); ++i) {
    const std::string child = show(children[i], levels - 1);
    if (made.kind == Kind::Sum) {
      const double factor = made.factors[i];
      text += i == 0 ? (factor < 0 ? "-" : "") : factor < 0 ? " - " : " + ";
      text += isNumber(children[i], 1) ? fmt::format("{}", std::fabs(factor))
              : std::fabs(factor) == 1 ? child
                                       : fmt::format("{} * {}", std::fabs(factor), child);
    } else {
      text += (i == 0 ? "" : made.kind == Kind::Product ? " * " : ", ") + child;
    }
  }
  if (made.kind == Kind::Sum || made.kind == Kind::Product) return "(" + text + ")";
  if (made.kind == Kind::Function) return made.name + "(" + text + ")";
  if (made.kind == Kind::Microbatches)
    return fmt::format("sum{{{} <= microbatch m < {}}} {}", made.low, made.high, text);
  std::string runs;
  for (Atom own : over) runs += fmt::format("{}{} < {}", runs.empty() ? "" : ", ", show(self->of(own)), atom(own).size);
  if (made.kind == Kind::Opaque) return made.name + "{" + runs + "}(" + text + ")";
  static const char *const kinds[] = {"sum", "max", "min"};
  return fmt::format("{}{{{}}} {}", kinds[static_cast<int>(made.reduce)], runs, text);
}

} // namespace cleave::proof
