#include "braze/rewrite/patterns.h"

namespace braze::rewrite {

using graph::Argument;
using graph::Node;
using graph::OpId;
using graph::Value;

Value* Match::operator[](std::string_view name) const {
  const Argument* found = argument(name);
  return found != nullptr && found->is<Value*>() ? found->as<Value*>() : nullptr;
}

const Argument* Match::argument(std::string_view name) const {
  for (const auto& [bound, argument] : bound_)
    if (bound == name) return &argument;
  return nullptr;
}

void Match::bind(std::string_view name, Argument argument) { bound_.emplace_back(name, std::move(argument)); }

bool Match::agrees(std::string_view name, const Argument& argument) const {
  const Argument* found = this->argument(name);
  return found == nullptr || *found == argument;
}

struct Pattern::Body {
  enum class Kind { Any, Number, Call, Either, Moved } kind;
  std::string name;
  OpId op = OpId::Unknown;
  std::vector<Pattern> operands;
  bool commutes = false, once = false;
  Test test;
};

Pattern Pattern::once() const {
  auto body = std::make_shared<Body>(*body_);
  body->once = true;
  return Pattern(body);
}

Pattern Pattern::named(std::string_view name) const {
  auto body = std::make_shared<Body>(*body_);
  body->name = name;
  return Pattern(body);
}

Pattern Pattern::where(Test test) const {
  auto body = std::make_shared<Body>(*body_);
  body->test = std::move(test);
  return Pattern(body);
}

Pattern any(std::string_view name) {
  return Pattern(std::make_shared<Pattern::Body>(
      Pattern::Body{Pattern::Body::Kind::Any, std::string(name), {}, {}, false, false, {}}));
}

Pattern number(std::string_view name) {
  return Pattern(std::make_shared<Pattern::Body>(
      Pattern::Body{Pattern::Body::Kind::Number, std::string(name), {}, {}, false, false, {}}));
}

Pattern call(OpId op, std::vector<Pattern> operands) {
  return Pattern(std::make_shared<Pattern::Body>(
      Pattern::Body{Pattern::Body::Kind::Call, "", op, std::move(operands), false, false, {}}));
}

Pattern commutative(OpId op, Pattern a, Pattern b) {
  return Pattern(std::make_shared<Pattern::Body>(
      Pattern::Body{Pattern::Body::Kind::Call, "", op, {std::move(a), std::move(b)}, true, false, {}}));
}

Pattern either(std::vector<Pattern> choices) {
  return Pattern(std::make_shared<Pattern::Body>(
      Pattern::Body{Pattern::Body::Kind::Either, "", {}, std::move(choices), false, false, {}}));
}

Pattern moved(Pattern inner) {
  return Pattern(std::make_shared<Pattern::Body>(
      Pattern::Body{Pattern::Body::Kind::Moved, "", {}, {std::move(inner)}, false, false, {}}));
}

Value* same_order(const Value* value) {
  const Node* node = value->producer;
  if (node == nullptr) return nullptr;
  switch (node->op->id) {
    case OpId::view:
    case OpId::_unsafe_view:
    case OpId::reshape:
    case OpId::clone:
    case OpId::alias:
    case OpId::detach:
    case OpId::unsqueeze:
    case OpId::squeeze:
    case OpId::squeeze_dim:
    case OpId::squeeze_dims:
      return node->arguments[0].as<Value*>();
    case OpId::expand: {
      Value* x = node->arguments[0].as<Value*>();
      return graph::numel(x->type.sizes) == graph::numel(value->type.sizes) ? x : nullptr;
    }
    default:
      return nullptr;
  }
}

bool Pattern::matches(const Argument& argument, Match& match) const {
  const Body& body = *body_;
  size_t mark = match.size();
  auto fail = [&] {
    match.truncate(mark);
    return false;
  };
  auto bind = [&] {
    if (body.name.empty()) return true;
    if (!match.agrees(body.name, argument)) return false;
    match.bind(body.name, argument);
    return true;
  };
  if (body.kind == Body::Kind::Number) return graph::number(argument).has_value() && (bind() || fail());
  if (body.kind == Body::Kind::Either) {
    for (const Pattern& choice : body.operands)
      if (choice.matches(argument, match)) return bind() || fail();
    return false;
  }
  if (!argument.is<Value*>() || argument.as<Value*>() == nullptr) return false;
  Value* value = argument.as<Value*>();
  if (body.kind == Body::Kind::Moved) {
    for (Value* at = value; at != nullptr; at = same_order(at))
      if (body.operands[0].matches(at, match)) return bind() || fail();
    return false;
  }
  if (body.test && !body.test(value)) return false;
  if (body.kind == Body::Kind::Any) return bind() || fail();

  const Node* node = value->producer;
  if (node == nullptr || node->op->id != body.op || node->results.empty() || node->result() != value) return false;
  if (body.once) {
    if (value->users.size() != 1) return false;
    for (const Value* output : node->owner->outputs)
      if (output == value) return false;
    for (const graph::Mutation& mutation : node->owner->mutations)
      if (mutation.value == value) return false;
  }
  auto operands_match = [&](bool swapped) {
    for (size_t i = 0; i < body.operands.size(); ++i) {
      size_t from = swapped ? body.operands.size() - 1 - i : i;
      if (!body.operands[i].matches(node->arguments[from], match)) return fail();
    }
    return true;
  };
  if (!operands_match(false) && !(body.commutes && operands_match(true))) return false;
  return bind() || fail();
}

}  // namespace braze::rewrite
