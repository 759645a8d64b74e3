// Access over every transport: operations of every kind are tried without a right to them. None runs, and no token is told to anybody.
#include <gtest/gtest.h>

#include "remote/every_transport.hpp"

namespace weft::remote::access_test {
namespace {

using namespace every_transport;

constexpr const char* kRight = "the-token-of-the-one-with-rights";
constexpr const char* kSecret = "what-only-they-may-see";
const char* const kUnknown[] = {"",
                                "a-token-that-nobody-has",
                                "the-token-of-the-one-with-right",
                                "the-token-of-the-one-with-rightss",
                                "THE-TOKEN-OF-THE-ONE-WITH-RIGHTS",
                                "Bearer the-token-of-the-one-with-rights",
                                "the-token-of-the-one-with-rights,the-token-of-the-one-with-rights",
                                "*"};
const char* const kWeak[] = {"a-token-without-any-right", "a-token-with-wrong-scopes", "a-token-of-another-model",
                             "a-token-of-another-kind"};
const char* const kTokens = R"([
    {"token": "the-token-of-the-one-with-rights", "id": "alice", "scopes": ["*"], "resources": {"model:*": ["*"]}},
    {"token": "a-token-without-any-right", "id": "bob"},
    {"token": "a-token-with-wrong-scopes", "id": "ALICE", "scopes": ["models:read", "Models:run", "models:run ", "models", "tensor:run"]},
    {"token": "a-token-of-another-model", "id": "carol", "resources": {"model:b": ["run"], "model:": ["*"], "model": ["*"], "*": ["*"]}},
    {"token": "a-token-of-another-kind", "id": "dave", "resources": {"model:a": ["read", "RUN"], "dataset:*": ["*"]}}])";

class Access : public EveryTransport {
 protected:
  Access() {
    registry_->add_access_function("only_alice",
                                   [](const op::Identity* who, const Value&) { return who && who->id == "alice"; });
    const std::pair<const char*, op::Access> guards[] = {
        {"scope", {.scopes = {"models:run"}}},
        {"scopes", {.scopes = {"tensor:run", "models:run"}}},
        {"any", {.any_scopes = {"admin", "models:write"}}},
        {"resource", {.resource_type = "model", .resource_action = "run", .resource_input = "model"}},
        {"both",
         {.scopes = {"tensor:run"}, .resource_type = "model", .resource_action = "run", .resource_input = "model"}},
        {"function", {.function = "only_alice"}}};
    for (const auto& [name, access] : guards) {
      for (const auto& [space, kind] : {std::pair{"query", op::Kind::query}, std::pair{"mutation", op::Kind::mutation}})
        registry_->add({.space = space, .name = name, .kind = kind, .access = access}, [this](op::Context&) {
          ++runs_;
          return Value::object({{"secret", kSecret}});
        });
      registry_->add({.space = "stream", .name = name, .kind = op::Kind::subscription, .access = access},
                     [this](op::Context& call) {
                       ++runs_;
                       call.emit(Value::object({{"secret", kSecret}}));
                       return Value();
                     });
    }
    registry_->add({.space = "hidden", .name = "one", .visibility = op::Visibility::internal}, [this](op::Context&) {
      ++runs_;
      return Value(kSecret);
    });
    begin(Value::parse(kTokens));
  }

  // The code of the error that a call ends in; "" if it ends well.
  template <class Call>
  std::string refusal(const Call& call) {
    try {
      call();
    } catch (const op::OperationError& error) {
      const std::string message = error.what();
      EXPECT_EQ(message.find(kSecret), std::string::npos) << message;
      for (const char* token : kWeak) EXPECT_EQ(message.find(token), std::string::npos) << message;
      EXPECT_EQ(message.find(kRight), std::string::npos) << message;
      return error.code();
    }
    return "";
  }

  std::atomic<int> runs_ = 0;
};

TEST_F(Access, NobodyGetsInWithoutTheRight) {
  std::vector<std::string> guarded;
  for (const auto& each : registry_->list())
    if (each->space == "query" || each->space == "mutation" || each->space == "stream") guarded.push_back(each->id());
  ASSERT_EQ(guarded.size(), 18u);
  const Value input = Value::object({{"model", "a"}});
  for (const Way way : ways()) {
    SCOPED_TRACE(name_of(way));
    int refused = 0;
    const auto attempt = [&](const char* token, const std::string& id, std::string_view code) {
      EXPECT_EQ(refusal([&] { client(way, token).call(id, input); }), code) << id << " with the token " << token;
      ++refused;
    };
    for (const std::string& id : guarded) {
      for (const char* token : kUnknown) attempt(token, id, "UNAUTHENTICATED");
      for (const char* token : kWeak) attempt(token, id, op::kAccessDenied);
    }
    for (const char* token : kWeak) attempt(token, "hidden.one", way == Way::nats ? "UNAVAILABLE" : op::kNotFound);
    attempt(kRight, "hidden.one", way == Way::nats ? "UNAVAILABLE" : op::kNotFound);
    EXPECT_EQ(runs_, 0);
    EXPECT_GE(refused, 200);
    // Whoever has the right gets in, so that it is the right that was missing.
    AnyClient alice = client(way, kRight);
    for (const std::string& id : guarded) EXPECT_EQ(refusal([&] { alice.call(id, input); }), "") << id;
    EXPECT_EQ(runs_.exchange(0), 18);
  }
  const std::string lines = log();
  EXPECT_NE(lines.find("ACCESS_DENIED"), std::string::npos);
  for (const char* token : kWeak) EXPECT_EQ(lines.find(token), std::string::npos) << token;
  for (const char* text : {kRight, kSecret, "Bearer", "nobody-has"}) EXPECT_EQ(lines.find(text), std::string::npos);
}

TEST_F(Access, HandlesOfOthersAreNotFound) {
  for (const Way way : ways()) {
    SCOPED_TRACE(name_of(way));
    AnyClient alice = client(way, kRight), other = client(way, "a-token-with-wrong-scopes");
    const Value held = alice.call("handle.create", Value::object({{"tensor", tensor({1.0f, 2.0f})}}));
    const Value named = Value::object({{"x", Value::object({{"$tensor", held}})}});
    EXPECT_EQ(refusal([&] { alice.call("tensor.neg", named); }), "");
    EXPECT_EQ(refusal([&] { other.call("tensor.neg", named); }), op::kValidationError);
    for (const char* id : {"handle.read", "handle.free"})
      EXPECT_EQ(refusal([&] { other.call(id, held); }), "HANDLE_NOT_FOUND") << id;
    EXPECT_TRUE(other.call("handle.list", Value::Object())["handles"].elements().empty());
    EXPECT_EQ(refusal([&] { alice.call("handle.free", held); }), "");
  }
}

}  // namespace
}  // namespace weft::remote::access_test
