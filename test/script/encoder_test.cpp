// Text encoders in scripts: the same values as in C++, and what is refused.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "encoder/tiny_encoder.hpp"
#include "script/run_script.hpp"

namespace weft::script::encoder_test {
namespace {

TEST(ScriptEncoder, AnswersAsInCpp) {
  const test::TemporaryFolder folder;
  for (const char* name : {"bert", "roberta-classes", "bert-tokens", "bert-masks", "bert-answers"})
    test::put_encoder(test::encoder_case(name), name, folder.path() / name);
  const std::vector<float> row =
      encoder::load(folder.path() / "bert").embed({"w9 w8"}, {.prompt = "query"}).to_vector<float>();
  const std::string documents[] = {"w8", "w30", "w40 w41"};
  const encoder::Ranked best = encoder::load(folder.path() / "roberta-classes").rerank("w9", documents)[0];
  const std::size_t entities = encoder::load(folder.path() / "bert-tokens").entities("w9 w10 w30").size();
  const encoder::Fill fill = encoder::load(folder.path() / "bert-masks").fill_masks("w9 [MASK]")[0][0];
  const encoder::Answer answer =
      encoder::load(folder.path() / "bert-answers").answer("w9", "w30 w31 w32", {.longest = 2})[0];
  const float half = encoder::load(folder.path() / "bert", {.precision = DType::f16})
                         .embed({"w9 w8"}, {.prompt = "query"})
                         .to_vector<float>()[0];
  IsolateOptions options = small_limits();
  options.time_limit = std::chrono::minutes(1);
  options.read_folders = {folder.path()};
  std::string text = R"(
import { encoder } from "weft";
const rows = encoder.load("$/bert");
console.log(Math.round(rows.embed(["w9 w8"], { prompt: "query" }).readSync()[0] * 1e5));
const order = encoder.load("$/roberta-classes");
const [best] = order.rerank("w9", ["w8", "w30", "w40 w41"], { count: 1 });
console.log(best.index, Math.round(best.score * 1e5), order.logits(["w9"], ["w8"]).shape.join(), order.classify("w9").length);
console.log(encoder.load("$/bert-tokens").entities("w9 w10 w30").length);
const [[fill]] = encoder.load("$/bert-masks").fillMasks("w9 [MASK]", { count: 1 });
console.log(fill.text, Math.round(fill.probability * 1e5));
const [found] = encoder.load("$/bert-answers").answer("w9", "w30 w31 w32", { longest: 2 });
console.log(found.text, found.begin, found.end, Math.round(found.probability * 1e5));
const half = encoder.load("$/bert", { precision: "f16" }).embed(["w9 w8"], { prompt: "query" }).readSync()[0];
console.log(Math.round(half * 1e5));
try { rows.embedTexts(["w9"]); } catch (error) { console.log(error.name, error.message); }
try { rows.classify("w9", { counts: 1 }); } catch (error) { console.log(error.message); }
)";
  for (std::size_t at; (at = text.find('$')) != std::string::npos;) text.replace(at, 1, folder.path().string());
  const Ran ran = run_script(text, options);
  EXPECT_EQ(ran.result.outcome, Outcome::done) << ran.result.message;
  const std::string wanted = fmt::format(
      "{}\n{} {} 1,1 1\n{}\n{} {}\n{} {} {} {}\n{}\nUsageError embedTexts: it is no method of the kind \"text "
      "encoder\"\n",
      std::lround(row[0] * 1e5), best.index, std::lround(best.score * 1e5), entities, fill.text,
      std::lround(fill.probability * 1e5), answer.text, answer.begin, answer.end, std::lround(answer.probability * 1e5),
      std::lround(half * 1e5));
  EXPECT_EQ(ran.printed.substr(0, wanted.size()), wanted);
  EXPECT_NE(ran.printed.find("counts"), std::string::npos);
}

}  // namespace
}  // namespace weft::script::encoder_test
