// The catalogue: every op of the table as an operation, handles, the wire, gradient checks, files, training.
#include "weft/catalogue.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <thread>

#include "base/message_of.hpp"
#include "base/temporary_folder.hpp"
#include "catalogue/frame.hpp"
#include "catalogue/op_values.hpp"
#include "catalogue/wire.hpp"
#include "llm/byte_model.hpp"
#include "operations/code_of.hpp"
#include "runtime/op_cases.hpp"
#include "weft/io.hpp"
#include "weft/llm.hpp"
#include "weft/weft.hpp"

namespace weft::operations::catalogue_test {
namespace {

using test::code_of;
using test::message_of;

struct CatalogueTest : testing::Test {
  CatalogueTest() { set_default_device(parse_device("cpu")); }
  test::TemporaryFolder folder;
  std::shared_ptr<Registry> registry = std::make_shared<Registry>();
  CatalogueOptions options{.read_folders = {folder.path()},
                           .write_folders = {folder.path() / "out"},
                           .tensor_bytes_max = 1 << 20,
                           .handles_max = 4,
                           .handle_bytes_max = 1000};
  Catalogue catalogue{registry, options};
  Exchange exchange{registry};
  CallOptions owner{.identity = registry->owner()};

  Value call(std::string_view id, Value input) { return exchange.call(id, std::move(input), owner).data; }
};

// ---- Tensor ops -----------------------------------------------------------------------------------------------------------------

TEST_F(CatalogueTest, EveryOpIsAnOperation) {
  for (const graph::OpRow* row : graph::op_rows()) {
    const auto specification = registry->find("tensor." + row->name);
    ASSERT_TRUE(specification) << row->name;
    EXPECT_EQ(specification->description, row->doc);
    std::set<std::string> names;
    for (const auto& input : row->inputs)
      EXPECT_TRUE(names.insert(input.name).second) << row->name << " " << input.name;
    for (const auto& attribute : row->attributes)
      EXPECT_TRUE(names.insert(attribute.name).second) << row->name << " " << attribute.name;
  }
}

// The tested cases of every row give the same bits through the exchange; what a row refuses is refused there too.
TEST_F(CatalogueTest, OperationsGiveWhatTheirOpsGive) {
  int cases = 0, refused = 0;
  for (const graph::OpRow* row : graph::op_rows()) {
    const auto input_of = [&](const graph::Tensors& inputs, const graph::CaseAttributes& attributes) {
      Value::Object object;
      std::size_t i = 0;
      for (const graph::InputSpec& spec : row->inputs) {
        if (spec.repeated) {
          Value::Array rest;
          for (std::size_t each = i; each < inputs.size(); ++each)
            if (inputs[each].defined()) rest.push_back(inputs[each]);
          if (!rest.empty() || !spec.optional) object.set(spec.name, std::move(rest));
        } else if (i < inputs.size() && inputs[i].defined()) {
          object.set(spec.name, inputs[i]);
        }
        ++i;
      }
      for (const auto& [name, value] : attributes) object.set(graph::attribute_of(*row, name).name, value_of(value));
      return object;
    };
    for (const graph::OpCase& one : row->cases) {
      if (!runtime::takes(*row, one.inputs, DType::f32)) continue;
      const graph::Tensors inputs = runtime::case_inputs(one.inputs, DType::f32);
      graph::Tensors wanted;
      try {
        wanted = graph::apply(*row, inputs, one.attributes);
      } catch (const Error&) {
        continue;  // not in this dtype
      }
      const Envelope answer = exchange.call("tensor." + row->name, input_of(inputs, one.attributes), owner);
      EXPECT_TRUE(answer.warnings.empty()) << row->name << ": " << one.name;
      const Tensor got =
          row->several_outputs ? answer.data["results"][std::size_t{0}].tensor() : answer.data["result"].tensor();
      EXPECT_EQ(got.shape(), wanted[0].shape()) << row->name << ": " << one.name;
      EXPECT_EQ(got.dtype(), wanted[0].dtype());
      ++cases;
    }
    for (const graph::ErrorCase& one : row->errors) {
      const graph::Tensors inputs = runtime::case_inputs(one.inputs, DType::f32);
      const std::string code = code_of([&] { call("tensor." + row->name, input_of(inputs, one.attributes)); });
      EXPECT_NE(code, "none") << row->name << ": " << one.name;
      EXPECT_NE(code, kExecutionError) << row->name << ": " << one.name;
      ++refused;
    }
  }
  EXPECT_GE(cases, 100);
  EXPECT_GE(refused, 90);
}

TEST_F(CatalogueTest, NumbersStandForTensors) {
  const Value sum = call("tensor.add", Value::object({{"x", tensor({1.0f, 2.0f})}, {"y", 3}}));
  EXPECT_EQ(sum["result"].tensor().to_vector<float>(), (std::vector<float>{4, 5}));
  EXPECT_EQ(call("tensor.softmax", Value::object({{"x", zeros({2})}, {"axis", nullptr}}))["result"]
                .tensor()
                .to_vector<float>(),
            (std::vector<float>{0.5, 0.5}));
}

TEST_F(CatalogueTest, RefusesWrongInputsByName) {
  EXPECT_EQ(message_of<OperationError>([&] {
              call("tensor.softmax", Value::object({{"x", zeros({2})}, {"axes", 1}}));
            }),
            "tensor.softmax: the input does not fit:\nthe value: has a property \"axes\", which is not known; known "
            "are axis, x");
  EXPECT_EQ(code_of([&] { call("tensor.softmax", Value::object({})); }), kValidationError);
  EXPECT_EQ(code_of([&] { call("tensor.softmax", Value::object({{"x", zeros({2})}, {"axis", 5}})); }), "SHAPE_ERROR");
  EXPECT_EQ(code_of([&] {
              call("tensor.matmul", Value::object({{"a", zeros({2, 3})}, {"b", zeros({4, 5})}}));
            }),
            "SHAPE_ERROR");
  EXPECT_EQ(code_of([&] {
              call("tensor.elu", Value::object({{"x", zeros({2}, DType::i32)}}));
            }),
            kValidationError)
      << "the schema has the dtypes";
  EXPECT_EQ(code_of([&] {
              call("tensor.expand", Value::object({{"x", zeros({1})}, {"shape", Value::array({1 << 20})}}));
            }),
            "TENSOR_TOO_LARGE");
  EXPECT_EQ(code_of([&] { exchange.call("tensor.sin", Value::object({{"x", zeros({2})}})); }), kAccessDenied);
}

TEST_F(CatalogueTest, ChecksGradients) {
  const Tensor x = tensor({{0.3f, -0.7f}, {0.1f, 0.9f}}), y = tensor({{0.2f, 0.5f}, {-0.4f, 0.6f}});
  for (const auto& [op, input] : {std::pair<const char*, Value>{"tanh", Value::object({{"x", x}})},
                                  {"softmax", Value::object({{"x", x}, {"axis", 0}})},
                                  {"matmul", Value::object({{"a", x}, {"b", y}})},
                                  {"concat", Value::object({{"parts", Value::array({x, y})}, {"axis", 1}})}}) {
    const Value result = call("gradient.check", Value::object({{"op", op}, {"input", input}}));
    EXPECT_TRUE(result["holds"].boolean()) << op << " " << result.to_json();
  }
  EXPECT_EQ(code_of([&] {
              call("gradient.check", Value::object({{"op", "argmax"}, {"input", Value::object({{"x", x}})}}));
            }),
            "NO_GRADIENT");
}

// ---- Handles and the wire -----------------------------------------------------------------------------------------------------------

TEST_F(CatalogueTest, HandlesBelongToTheirOwners) {
  const Value handle = call("handle.create", Value::object({{"tensor", tensor({1.0f, 2.0f})}}));
  EXPECT_EQ(call("handle.read", handle)["tensor"].tensor().to_vector<float>(), (std::vector<float>{1, 2}));
  EXPECT_EQ(call("handle.list", {})["handles"].elements().size(), 1u);
  Identity other = registry->owner();
  other.id = "other";
  for (const char* id : {"handle.read", "handle.free"})
    EXPECT_EQ(code_of([&] { exchange.call(id, handle, {.identity = other}); }), "HANDLE_NOT_FOUND");
  EXPECT_EQ(exchange.call("handle.list", {}, {.identity = other}).data["handles"].elements().size(), 0u);
  EXPECT_EQ(code_of([&] {
              from_wire(Value::object({{"$tensor", handle}}), catalogue.handles(), "other");
            }),
            kValidationError);
  call("handle.free", handle);
  EXPECT_EQ(code_of([&] { call("handle.read", handle); }), "HANDLE_NOT_FOUND");
  EXPECT_EQ(catalogue.handles().size(), 0u);
  EXPECT_EQ(catalogue.handles().bytes(), 0u);
}

TEST_F(CatalogueTest, HandlesHaveLimitsAndAreFreedWithTheirOwner) {
  for (int i = 0; i < 4; ++i) call("handle.create", Value::object({{"tensor", zeros({4})}}));
  EXPECT_EQ(code_of([&] { call("handle.create", Value::object({{"tensor", zeros({4})}})); }), "HANDLE_LIMIT");
  catalogue.handles().free_all_of("owner");
  EXPECT_EQ(catalogue.handles().size(), 0u);
  EXPECT_EQ(code_of([&] {
              call("handle.create", Value::object({{"tensor", zeros({251})}}));
            }),
            "HANDLE_LIMIT")
      << "1004 bytes";
  call("handle.create", Value::object({{"tensor", zeros({250})}}));
  EXPECT_EQ(catalogue.handles().bytes(), 1000u);
  catalogue.handles().free_unused_for(std::chrono::hours(1));
  EXPECT_EQ(catalogue.handles().size(), 1u);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  catalogue.handles().free_unused_for(std::chrono::seconds(0));
  EXPECT_EQ(catalogue.handles().size(), 0u);
}

TEST_F(CatalogueTest, FramesHoldTensorsAsBytes) {
  const Tensor x = tensor({{1.0f, -2.5f, 3.0f}}), n = tensor({7, 8}), none = zeros({0, 3});
  const Value value = Value::object({{"a", Value::array({x, 3})}, {"n", n}, {"none", none}, {"text", "four"}});
  const Frame frame(value, WireTensors::data, catalogue.handles(), "me");
  const std::string bytes = frame.to_string();
  EXPECT_EQ(bytes.size(), frame.bytes());
  EXPECT_EQ(bytes.substr(0, 8), std::string("WEFT\1\0\0\0", 8));
  const Value back = from_frame(bytes, catalogue.handles(), "me");
  EXPECT_EQ(back["a"][std::size_t{0}].tensor().to_vector<float>(), x.to_vector<float>());
  EXPECT_EQ(back["n"].tensor().to_vector<std::int32_t>(), (std::vector<std::int32_t>{7, 8}));
  EXPECT_EQ(back["none"].tensor().shape(), Shape({0, 3}));
  EXPECT_EQ(back["text"], Value("four"));
  EXPECT_EQ(from_frame(R"({"x": 1})", catalogue.handles(), "me"), Value::object({{"x", 1}})) << "plain JSON";
  // All beginnings, and damage at each byte of the head and the JSON: refused, or a value.
  const std::size_t json_end = bytes.find("four") + 6;
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    try {
      (void)from_frame(bytes.substr(0, length), catalogue.handles(), "me");
      EXPECT_GE(length, json_end);
    } catch (const OperationError& error) {
      EXPECT_EQ(error.code(), kValidationError);
    }
  }
  for (std::size_t at = 0; at < json_end; ++at)
    for (const int flip : {1, 2, 8, 64, 128}) {
      std::string damaged = bytes;
      damaged[at] = static_cast<char>(damaged[at] ^ flip);
      try {
        (void)from_frame(damaged, catalogue.handles(), "me");
      } catch (const OperationError& error) {
        EXPECT_EQ(error.code(), kValidationError);
      }
    }
  EXPECT_THROW(
      from_wire(Value::parse(R"({"$tensor": {"dtype": "f32", "shape": [1], "offset": 0}})"), catalogue.handles(), "me"),
      OperationError)
      << "an offset without a section";
}

TEST_F(CatalogueTest, HandlesEndWithTheirSession) {
  Handles& handles = catalogue.handles();
  handles.put(tensor({1.0f}), "me", "first");
  handles.put(tensor({2.0f}), "me", "second");
  handles.put(tensor({3.0f}), "me");
  handles.free_session("");
  EXPECT_EQ(handles.size(), 3u);
  handles.free_session("first");
  EXPECT_EQ(handles.size(), 2u);
  exchange.call("handle.create", Value::object({{"tensor", tensor({4.0f})}}),
                {.identity = registry->owner(), .session = "third"});
  EXPECT_EQ(handles.size(), 3u);
  handles.free_session("third");
  EXPECT_EQ(handles.size(), 2u);
}

TEST_F(CatalogueTest, TensorsCrossTheWire) {
  const Tensor x = tensor({{1.0f, -2.5f, 3.0f}});
  const Value out = to_wire(Value::object({{"a", Value::array({x, 3})}}), WireTensors::data, catalogue.handles(), "me");
  EXPECT_EQ(out.to_json(), R"({"a":[{"$tensor":{"dtype":"f32","shape":[1,3],"data":"AACAPwAAIMAAAEBA"}},3]})");
  const Value back = from_wire(out, catalogue.handles(), "me");
  EXPECT_EQ(back["a"][std::size_t{0}].tensor().to_vector<float>(), x.to_vector<float>());
  const Value held = to_wire(Value(x), WireTensors::handles, catalogue.handles(), "me");
  EXPECT_EQ(from_wire(held["$tensor"].find("handle")
                          ? Value::object({{"$tensor", Value::object({{"handle", held["$tensor"]["handle"]}})}})
                          : Value(),
                      catalogue.handles(), "me")
                .tensor()
                .to_vector<float>(),
            x.to_vector<float>());
  for (const DType type : {DType::f64, DType::f16, DType::bf16, DType::i64, DType::i32, DType::u8, DType::boolean}) {
    const Tensor typed = cast(tensor({0.0f, 1.0f, 1.0f}), type);
    const Tensor again =
        from_wire(to_wire(Value(typed), WireTensors::data, catalogue.handles(), ""), catalogue.handles(), "").tensor();
    EXPECT_EQ(again.dtype(), type);
    EXPECT_EQ(cast(again, DType::f32).to_vector<float>(), (std::vector<float>{0, 1, 1}));
  }
  EXPECT_EQ(encode_base64(""), "");
  EXPECT_EQ(encode_base64("a"), "YQ==");
  EXPECT_EQ(encode_base64("ab"), "YWI=");
  EXPECT_EQ(encode_base64("abc"), "YWJj");
}

TEST_F(CatalogueTest, RefusesWrongTensorsOnTheWire) {
  for (const char* wrong :
       {R"({"$tensor": 3})", R"({"$tensor": {}})", R"({"$tensor": {"dtype": "f31", "shape": [], "data": ""}})",
        R"({"$tensor": {"dtype": "q4_k", "shape": [256], "data": ""}})",
        R"({"$tensor": {"dtype": "f32", "shape": [1], "data": "AA=="}})",
        R"({"$tensor": {"dtype": "f32", "shape": [-1], "data": ""}})",
        R"({"$tensor": {"dtype": "f32", "shape": [1.5], "data": ""}})",
        R"({"$tensor": {"dtype": "f32", "shape": [1099511627776, 1099511627776], "data": ""}})",
        R"({"$tensor": {"dtype": "f32", "shape": ["1"], "data": ""}})",
        R"({"$tensor": {"dtype": "f32", "shape": [1], "data": "!!!!!!"}})",
        R"({"$tensor": {"dtype": "bool", "shape": [1], "data": "Ag=="}})", R"({"$tensor": {"handle": "t-0"}})",
        R"({"$tensor": {"handle": 3}})", R"({"$tensor": {"handle": "a", "dtype": "f32"}})",
        R"({"$tensor": {"dtype": "f32", "shape": [0], "data": ""}, "x": 1})", R"([{"a": {"$tensor": null}}])"})
    EXPECT_EQ(code_of([&] { from_wire(Value::parse(wrong), catalogue.handles(), ""); }), kValidationError) << wrong;
}

TEST_F(CatalogueTest, SchemasForTheWireAreSchemas) {
  for (const auto& specification : registry->list()) {
    const schema::Schema input(schema_for_wire(specification->input)), output(schema_for_wire(specification->output));
  }
  const Value schema = schema_for_wire(registry->find("tensor.tanh")->input);
  EXPECT_TRUE(schema["properties"]["x"]["anyOf"][std::size_t{0}].find("properties"));
}

// ---- Files ------------------------------------------------------------------------------------------------------------------------------

TEST_F(CatalogueTest, FilesLieInAllowedFolders) {
  std::filesystem::create_directories(folder.path() / "out");
  const std::string inside = (folder.path() / "out" / "w.safetensors").string();
  call("weights.write", Value::object({{"path", inside}, {"tensors", Value::object({{"a", tensor({1.0f, 2.0f})}})}}));
  EXPECT_EQ(call("weights.list", Value::object({{"path", inside}}))["tensors"][std::size_t{0}]["name"], Value("a"));
  EXPECT_EQ(
      call("weights.read", Value::object({{"path", inside}, {"name", "a"}}))["tensor"].tensor().to_vector<float>(),
      (std::vector<float>{1, 2}));
  EXPECT_EQ(code_of([&] { call("weights.read", Value::object({{"path", inside}, {"name", "b"}})); }), "FILE_ERROR");
  const std::string blocks = (folder.path() / "out" / "q.metatensor").string();
  metatensor::Writer().tensor("q", cast(ones({32}), DType::q4_0)).save(blocks);
  EXPECT_EQ(call("weights.list", Value::object({{"path", blocks}}))["tensors"][std::size_t{0}]["type"], Value("Q4_0"));
  std::filesystem::create_symlink("/etc", folder.path() / "link");
  for (const std::string& path : {std::string("/etc/hostname"), (folder.path() / "out/../../x").string(),
                                  (folder.path() / "link/hostname").string(), std::string(""), std::string("\0x", 2)})
    for (const char* id : {"weights.list", "checkpoint.describe", "dataset.describe"})
      EXPECT_EQ(code_of([&] { call(id, Value::object({{"path", path}})); }), kAccessDenied) << path;
  EXPECT_EQ(code_of([&] {
              call("weights.write", Value::object({{"path", (folder.path() / "x").string()},
                                                   {"tensors", Value::object({{"a", zeros({1})}})}}));
            }),
            kAccessDenied)
      << "it may be read, not written";
  // Weights are resources.
  Identity reader{.id = "reader", .scopes = {"files:read"}, .resources = {{"weights:" + inside, {"read"}}}};
  exchange.call("weights.list", Value::object({{"path", inside}}), {.identity = reader});
  reader.resources = {{"weights:other", {"read"}}};
  EXPECT_EQ(code_of([&] {
              exchange.call("weights.list", Value::object({{"path", inside}}), {.identity = reader});
            }),
            kAccessDenied);
}

// ---- Training ---------------------------------------------------------------------------------------------------------------------------

TEST_F(CatalogueTest, TrainsObservesAndDescribes) {
  const std::string data = (folder.path() / "text.txt").string();
  {
    std::ofstream out(data);
    for (int i = 0; i < 200; ++i) out << "row, row, row your boat, gently down the stream\n";
  }
  EXPECT_GT(call("dataset.describe", Value::object({{"path", data}}))["tokens"].integer(), 9000);
  const std::string out = (folder.path() / "out" / "run").string();
  const Value run =
      call("training.start",
           Value::object({{"data", data}, {"out", out}, {"preset", "tiny"}, {"steps", 20}, {"log_every", 5}}));
  std::string events;
  Value last;
  {
    Subscription observed = exchange.subscribe("training.observe", run, owner);
    while (auto answer = observed.next()) {
      last = answer->data;
      events += last["event"].string() + " ";
    }
  }
  EXPECT_EQ(last["event"], Value("end")) << last.to_json();
  EXPECT_EQ(last["steps"], Value(20));
  EXPECT_EQ(events.substr(0, 11), "begin step ") << events;
  Subscription late = exchange.subscribe("training.observe", run, owner);
  EXPECT_EQ(late.next()->data["event"], Value("begin")) << "who comes late sees all of it";
  EXPECT_TRUE(call("training.list", {})["runs"][std::size_t{0}]["done"].boolean());
  const Value checkpoint = call("checkpoint.describe", Value::object({{"path", out + "/last.safetensors"}}));
  EXPECT_EQ(checkpoint["step"], Value(20));
  EXPECT_TRUE(checkpoint["resumable"].boolean());
  Identity other = registry->owner();
  other.id = "other";
  EXPECT_EQ(code_of([&] { exchange.call("training.stop", run, {.identity = other}); }), "RUN_NOT_FOUND");
}

TEST_F(CatalogueTest, StopsTraining) {
  const std::string data = (folder.path() / "text.txt").string();
  {
    std::ofstream out(data);
    for (int i = 0; i < 200; ++i) out << "row, row, row your boat, gently down the stream\n";
  }
  const Value run = call("training.start", Value::object({{"data", data},
                                                          {"out", (folder.path() / "out" / "run").string()},
                                                          {"preset", "tiny"},
                                                          {"seconds", 600},
                                                          {"log_every", 1}}));
  Subscription observed = exchange.subscribe("training.observe", run, owner);
  Value last;
  while (auto answer = observed.next()) {
    last = answer->data;
    if (last["event"] == Value("step")) call("training.stop", run);
  }
  EXPECT_EQ(last["event"], Value("end")) << last.to_json();
  EXPECT_TRUE(last["interrupted"].boolean());
}

// ---- Models -----------------------------------------------------------------------------------------------------------------------------

TEST_F(CatalogueTest, ModelsAreResources) {
  EXPECT_EQ(code_of([&] {
              call("model.generate", Value::object({{"model", "none"}, {"prompt", "x"}}));
            }),
            "MODEL_NOT_FOUND");
  const Identity user{.id = "u", .resources = {{"model:a", {"run"}}}};
  for (const char* id : {"model.generate", "model.chat", "model.complete", "model.reply", "model.tokenize",
                         "model.detokenize", "model.describe", "model.unload", "model.load"})
    EXPECT_EQ(code_of([&] {
                exchange.call(id, Value::object({{"model", "b"}}), {.identity = user});
              }),
              kAccessDenied)
        << id;
  EXPECT_EQ(code_of([&] {
              call("model.load", Value::object({{"model", "m"}, {"path", "/etc/passwd"}}));
            }),
            kAccessDenied);
  std::ofstream(folder.path() / "broken.gguf") << "GGUF but not really";
  EXPECT_EQ(code_of([&] {
              call("model.load", Value::object({{"model", "m"}, {"path", (folder.path() / "broken.gguf").string()}}));
            }),
            "FILE_ERROR");
  EXPECT_EQ(call("model.list", {})["models"], Value(Value::Array()));
}

TEST_F(CatalogueTest, TextsFitTheirGrammar) {
  test::put_byte_model(folder, "{% for m in messages %}{{ m['content'] }}{% endfor %}");
  call("model.load", Value::object({{"model", "m"}, {"path", folder.path().string()}}));
  const auto said = [&](std::string_view id, Value more) {
    Value input = Value::object({{"model", "m"}, {"max_tokens", 300}, {"temperature", 2}, {"min_p", 0}});
    if (id == "model.generate")
      input.members().set("prompt", Value("It is"));
    else
      input.members().set("messages", Value(Value::Array{Value::object({{"role", "user"}, {"content", "Is it?"}})}));
    for (const auto& [key, value] : more.members()) input.members().set(key, value);
    std::string text;
    Subscription answers = exchange.subscribe(id, input, owner);
    while (const auto answer = answers.next()) text += answer->data["text"].string();
    return text;
  };
  const char* kGbnf = R"(root ::= ("yes" | "no") " because " [a-e]{1,8} ".")";
  const Value schema =
      Value::parse(R"({"type": "object", "properties": {"a": {"enum": [1, 22, null]}}, "required": ["a"]})");
  const llm::Grammar gbnf = llm::Grammar::parse(kGbnf), json = llm::Grammar::json_schema(schema);
  for (const char* id : {"model.generate", "model.chat"})
    for (int seed = 0; seed < 4; ++seed) {
      EXPECT_TRUE(gbnf.accepts(said(id, Value::object({{"grammar", kGbnf}, {"seed", seed}}))));
      EXPECT_TRUE(json.accepts(said(id, Value::object({{"schema", schema}, {"seed", seed}}))));
    }
  // Behind the first such letter, if one is drawn at all.
  int begun = 0;
  for (int seed = 0; seed < 12; ++seed) {
    const std::string text =
        said("model.generate", Value::object({{"grammar", kGbnf}, {"grammar_after", "e"}, {"seed", seed}}));
    const std::size_t at = text.find('e');
    if (at == std::string::npos) continue;
    ++begun;
    EXPECT_TRUE(gbnf.accepts_beginning(text.substr(at + 1))) << text;
  }
  EXPECT_GT(begun, 0);
  const auto refused = [&](Value more) { return message_of([&] { said("model.chat", more); }); };
  EXPECT_EQ(code_of([&] { said("model.generate", Value::object({{"grammar", "root ::= ("}})); }), "GRAMMAR_ERROR");
  EXPECT_NE(refused(Value::object({{"grammar", "root ::= ("}})).find("grammar:1: "), std::string::npos);
  EXPECT_NE(refused(Value::object({{"schema", Value::object({{"type", "text"}})}})).find("type"), std::string::npos);
  EXPECT_NE(refused(Value::object({{"grammar", kGbnf}, {"schema", schema}})).find("both given"), std::string::npos);
  EXPECT_NE(refused(Value::object({{"grammar_after", "x"}})).find("give grammar or schema too"), std::string::npos);
  EXPECT_NE(refused(Value::object({{"grammar", kGbnf}, {"grammar_is_optional", true}})).find("without grammar_after"),
            std::string::npos);
}

// The text at once is that of the pieces, and workflows can ask for it.
TEST_F(CatalogueTest, TextsAreAnsweredAtOnce) {
  test::put_byte_model(folder, "{% for m in messages %}{{ m['content'] }}{% endfor %}");
  call("model.load", Value::object({{"model", "m"}, {"path", folder.path().string()}}));
  const Value messages = Value::array({Value::object({{"role", "user"}, {"content", "Is it?"}})});
  const std::pair<const char*, Value> prompts[] = {{"prompt", Value("Is it?")}, {"messages", messages}};
  for (const auto& [key, prompt] : prompts) {
    const bool is_chat = key == std::string_view("messages");
    const Value input = Value::object({{"model", "m"}, {key, prompt}, {"max_tokens", 12}, {"seed", 3}});
    Value expected = Value::object({{"text", ""}});
    std::string text;
    Subscription answers = exchange.subscribe(is_chat ? "model.chat" : "model.generate", input, owner);
    while (const auto answer = answers.next()) {
      text += answer->data["text"].string();
      expected = answer->data;
    }
    expected.members().set("text", Value(text));
    EXPECT_EQ(call(is_chat ? "model.reply" : "model.complete", input), expected);
  }
  const workflow::Template both{.tree = workflow::element_from(Value::parse(R"({"type": "Sequential", "children": [
      {"type": "Map", "props": {"over": "$.input", "as": "word", "maxConcurrency": 2}, "children": [
        {"type": "Operation", "props": {"name": "model.complete", "input": {"model": "m", "prompt": "$.word", "max_tokens": 4, "temperature": 0}}}]},
      {"type": "Operation", "props": {"name": "model.tokenize", "input": {"model": "m", "text": "$.previous[1].text"}}}]})"))};
  EXPECT_EQ(workflow::to_string(workflow::check(both, *registry)), "");
  const Value tokens = workflow::run(exchange, both, Value::array({"a", "b"}), {.call = owner});
  const Value alone =
      call("model.complete", Value::object({{"model", "m"}, {"prompt", "b"}, {"max_tokens", 4}, {"temperature", 0}}));
  EXPECT_EQ(tokens, call("model.tokenize", Value::object({{"model", "m"}, {"text", alone["text"]}})));
}

// Nobody can make a process fetch that was not told to; neither can somebody without the right where it was.
TEST_F(CatalogueTest, FetchingIsOffByDefault) {
  const Value input = Value::object({{"name", "hf:acme/tiny"}});
  EXPECT_EQ(code_of([&] { call("model.fetch", input); }), "FETCH_DISABLED");
  auto other = std::make_shared<Registry>();
  const Catalogue open(other, {.may_fetch = true});
  Exchange fetching(other);
  const auto as = [&](const Identity& identity, const Value& value) {
    return code_of([&] { fetching.call("model.fetch", value, {.identity = identity}); });
  };
  EXPECT_EQ(as({.id = "u"}, input), kAccessDenied);
  EXPECT_EQ(as({.id = "u", .scopes = {"model:fetch"}}, input), kAccessDenied);
  EXPECT_EQ(as({.id = "u", .scopes = {"model:fetch"}, .resources = {{"model:hf:acme/other", {"fetch"}}}}, input),
            kAccessDenied);
  EXPECT_EQ(as(other->owner(), Value::object({{"name", "https://example.invalid/a.gguf"}})), "USAGE_ERROR");
  EXPECT_EQ(as(other->owner(), Value::object({{"name", "hf:../x"}})), "USAGE_ERROR");
}

// A file of weights is a resource of its own, for those who load models of it too.
TEST_F(CatalogueTest, WeightsAreResources) {
  const std::string mine = (folder.path() / "mine.safetensors").string(),
                    other = (folder.path() / "other.safetensors").string();
  for (const std::string& path : {mine, other}) save_safetensors(path, {{"w", ones({2})}});
  const Identity user{.id = "u",
                      .scopes = {"files:read", "files:write", "model:load"},
                      .resources = {{"weights:" + mine, {"read"}}, {"model:m", {"load"}}}};
  const auto as_user = [&](std::string_view id, Value input) {
    return code_of([&] { exchange.call(id, std::move(input), {.identity = user}); });
  };
  EXPECT_EQ(as_user("weights.read", Value::object({{"path", mine}, {"name", "w"}})), "none");
  EXPECT_EQ(as_user("weights.list", Value::object({{"path", mine}})), "none");
  EXPECT_EQ(as_user("weights.read", Value::object({{"path", other}, {"name", "w"}})), kAccessDenied);
  EXPECT_EQ(as_user("weights.list", Value::object({{"path", other}})), kAccessDenied);
  const Value tensors = Value::object({{"w", zeros({2})}});
  EXPECT_EQ(as_user("weights.write", Value::object({{"path", mine}, {"tensors", tensors}})), kAccessDenied)
      << "may read only";
  EXPECT_EQ(as_user("model.load", Value::object({{"path", other}, {"model", "m"}})), kAccessDenied);
  EXPECT_EQ(as_user("model.load", Value::object({{"path", mine}, {"model", "n"}})), kAccessDenied) << "another model";
  const Value adapters = Value::array({Value::object({{"path", other}})});
  EXPECT_EQ(as_user("model.load", Value::object({{"path", mine}, {"model", "m"}, {"adapters", adapters}})),
            kAccessDenied)
      << "its adapter";
  EXPECT_EQ(as_user("model.load", Value::object({{"path", mine}, {"model", "m"}})), "FILE_ERROR")
      << "allowed, and not a language model";
  EXPECT_EQ(load_safetensors(other).tensors.at("w").to_vector<float>(), (std::vector<float>{1, 1}));
}

}  // namespace
}  // namespace weft::operations::catalogue_test
