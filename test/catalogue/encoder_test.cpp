// Text encoders as operations: the same values as in C++, rights, and errors by their codes.
#include <gtest/gtest.h>

#include "encoder/tiny_encoder.hpp"
#include "operations/code_of.hpp"
#include "weft/catalogue.hpp"

namespace weft::operations::encoder_test {
namespace {

struct EncoderOperations : testing::Test {
  EncoderOperations() { set_default_device(parse_device("cpu")); }
  std::shared_ptr<Registry> registry = std::make_shared<Registry>();
  Catalogue catalogue{registry, {.any_files = true}};
  Exchange exchange{registry};
  CallOptions owner{.identity = registry->owner()};
  test::TemporaryFolder folder;

  Value call(std::string_view id, Value::Object input) {
    return exchange.call(id, Value(std::move(input)), owner).data;
  }
  void load(const std::string& name) {
    test::put_encoder(test::encoder_case(name), name, folder.path() / name);
    call("encoder.load", {{"model", name}, {"path", (folder.path() / name).string()}});
  }
};

TEST_F(EncoderOperations, AnswerAsTheModelsDo) {
  for (const char* name : {"bert", "roberta-classes", "bert-tokens", "bert-masks", "bert-answers"}) load(name);
  EXPECT_EQ(call("encoder.describe", {{"model", "bert"}})["width"], Value(32));
  call("encoder.load", {{"model", "half"}, {"path", (folder.path() / "bert").string()}, {"precision", "f16"}});
  EXPECT_EQ(call("encoder.embed", {{"model", "half"}, {"texts", Value::array({"w9 w8"})}})["embeddings"]
                .tensor()
                .to_vector<float>(),
            encoder::load(folder.path() / "bert", {.precision = DType::f16}).embed({"w9 w8"}).to_vector<float>());
  const Value made =
      call("encoder.embed", {{"model", "bert"}, {"texts", Value::array({"w9 w8", "w30"})}, {"prompt", "query"}});
  EXPECT_EQ(made["embeddings"].tensor().to_vector<float>(),
            encoder::load(folder.path() / "bert").embed({"w9 w8", "w30"}, {.prompt = "query"}).to_vector<float>());
  const Value ranked =
      call("encoder.rerank",
           {{"model", "roberta-classes"}, {"query", "w9"}, {"documents", Value::array({"w8", "w30"})}, {"count", 1}});
  const std::string documents[] = {"w8", "w30"};
  EXPECT_EQ(ranked["ranked"][0]["index"],
            Value(encoder::load(folder.path() / "roberta-classes").rerank("w9", documents)[0].index));
  EXPECT_EQ(call("encoder.classify", {{"model", "roberta-classes"}, {"text", "w9"}, {"pair", "w8"}})["labels"]
                .elements()
                .size(),
            1u);
  EXPECT_EQ(call("encoder.label", {{"model", "bert-tokens"}, {"text", "w9 w10"}})["tokens"].elements().size(), 2u);
  EXPECT_EQ(call("encoder.fill", {{"model", "bert-masks"}, {"text", "w9 [MASK]"}, {"count", 2}})["masks"][0]
                .elements()
                .size(),
            2u);
  const Value answers =
      call("encoder.answer", {{"model", "bert-answers"}, {"question", "w9"}, {"text", "w30 w31 w32"}, {"count", 2}});
  EXPECT_EQ(answers["answers"][0]["text"],
            Value(encoder::load(folder.path() / "bert-answers").answer("w9", "w30 w31 w32")[0].text));
  EXPECT_EQ(answers["answers"].elements().size(), 2u);
}

TEST_F(EncoderOperations, MemoriesEmbedByThem) {
  load("bert");
  call("memory.create", {{"memory", "notes"}, {"width", 32}});
  call("memory.add",
       {{"memory", "notes"},
        {"encoder", "bert"},
        {"entries", Value::array({Value::object({{"text", "w9 w8"}}), Value::object({{"text", "w30 w31"}})})}});
  const Value found =
      call("memory.search", {{"memory", "notes"}, {"encoder", "bert"}, {"query", "w9 w8"}, {"top_k", 1}});
  EXPECT_NE(found.to_json().find("w9 w8"), std::string::npos);
  EXPECT_THROW(call("memory.search", {{"memory", "notes"}, {"encoder", "bert"}, {"model", "m"}, {"query", "w9"}}),
               Error);
}

TEST_F(EncoderOperations, WrongCallsHaveCodes) {
  load("bert");
  const auto code = [&](std::string_view id, Value::Object input) {
    return test::code_of([&] { call(id, std::move(input)); });
  };
  EXPECT_EQ(code("encoder.embed", {{"model", "nothing"}, {"texts", Value::array({"w9"})}}), "ENCODER_NOT_FOUND");
  EXPECT_EQ(code("encoder.load", {{"model", "x"}, {"path", (folder.path() / "nothing").string()}}), "FILE_ERROR");
  EXPECT_EQ(code("encoder.load", {{"model", "bert"}, {"path", (folder.path() / "bert").string()}}), "ENCODER_EXISTS");
  EXPECT_NE(code("encoder.classify", {{"model", "bert"}, {"text", "w9"}}), "none");
  EXPECT_NE(code("encoder.embed", {{"model", "bert"}, {"texts", Value::array(std::initializer_list<Value>{})}}),
            "none");
}

}  // namespace
}  // namespace weft::operations::encoder_test
