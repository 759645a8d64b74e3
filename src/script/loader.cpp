// Modules: "weft", and files of granted folders. TypeScript and JSX become JavaScript by Sucrase, which runs in an engine of its
// own, where the script cannot reach it.
#include "script/loader.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <sstream>
#include <unordered_set>

#include "base/quote.hpp"
#include "script/files.hpp"

extern "C" const char weft_sucrase_begin[];
extern "C" const char weft_sucrase_end[];

namespace weft::script {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t kSourceBytesMax = std::size_t{16} << 20;
constexpr std::string_view kSuffixes[] = {"", ".js", ".mjs", ".ts", ".tsx", ".jsx"};

// ---- Sources --------------------------------------------------------------------------------------------------------------------

// A module whose default export is the value. The text is checked here, so that an error names its place in the file.
std::string module_of_json(Engine& engine, const std::string& source, const std::string& name) {
  const Local value = engine.checked(JS_ParseJSON(engine.context, source.c_str(), source.size(), name.c_str()));
  const Local text =
      engine.checked(JS_JSONStringify(engine.context, engine.string(source).get(), JS_UNDEFINED, JS_UNDEFINED));
  return "export default JSON.parse(" + engine.text(text.get()) + ");";
}

// The first namespace with code, which the compiler drops: its line in the source is not in the result.
std::string dropped_namespace(const std::string& source, const std::string& code) {
  std::istringstream lines(source), made(code);
  std::string line, result;
  while (std::getline(lines, line) && std::getline(made, result)) {
    std::string_view rest = line;
    const auto skip = [&](std::string_view word) {
      rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
      const bool is_there = rest.starts_with(word) && rest.substr(word.size()).starts_with(' ');
      if (is_there) rest.remove_prefix(word.size() + 1);
      return is_there;
    };
    skip("export");
    if (!skip("namespace") || rest.find('{') == std::string_view::npos) continue;
    if (result.find("namespace") == std::string::npos) return std::string(rest.substr(0, rest.find_first_of(" {")));
  }
  return "";
}

// JavaScript for a file by its suffix. Lines stay where they are.
std::string compiled(Engine& engine, std::string source, const std::string& name) {
  const std::string suffix = fs::path(name).extension().string();
  if (suffix == ".json") return module_of_json(engine, source, name);
  const bool has_types = suffix == ".ts" || suffix == ".tsx" || suffix == ".mts",
             has_elements = suffix == ".tsx" || suffix == ".jsx";
  if (!has_types && !has_elements) return source;
  if (!engine.compiler) engine.compiler = std::make_unique<SourceCompiler>(engine);
  return engine.compiler->compile(source, name, has_types, has_elements);
}

// ---- Names ----------------------------------------------------------------------------------------------------------------------

// The folder that a file is below, among those that modules may be in.
bool find_root(const Engine& engine, const fs::path& file, Files::Place& place) {
  for (const fs::path& root : engine.module_roots)
    if (parts_below(root, file, place.parts) && !place.parts.empty()) {
      place.root = root;
      return true;
    }
  return false;
}

char* normalized(JSContext* context, const char* base, const char* name, void*) {
  Engine& engine = Engine::of(context);
  try {
    const std::string wanted = name;
    std::string result;
    if (wanted == "weft") {
      result = wanted;
    } else if (wanted.starts_with("./") || wanted.starts_with("../") || wanted.starts_with("/")) {
      const fs::path from(base);
      if (!from.is_absolute() && !wanted.starts_with("/"))
        throw AccessError(
            fmt::format("import: {} has no folder here, because {} is not a file", quote(wanted), quote(base)));
      const fs::path path =
          (wanted.starts_with("/") ? fs::path(wanted) : from.parent_path() / wanted).lexically_normal();
      Files::Place place;
      if (!find_root(engine, path, place))
        throw AccessError(
            fmt::format("import: {} is in no folder for modules; grant one with --modules", quote(path.string())));
      // A name without suffix, and .js for a TypeScript file, are what TypeScript allows.
      std::vector<std::string> candidates;
      for (const std::string_view suffix : kSuffixes) candidates.push_back(path.string() + std::string(suffix));
      if (path.extension() == ".js")
        for (const char* suffix : {".ts", ".tsx", ".jsx"})
          candidates.push_back(fs::path(path).replace_extension(suffix).string());
      for (const std::string& candidate : candidates) {
        if (!find_root(engine, candidate, place)) continue;
        try {
          engine.files->open(place);
          result = candidate;
          break;
        } catch (const FileError&) {
        }
      }
      if (result.empty()) throw FileError(fmt::format("import: there is no file {}", quote(path.string())));
    } else {
      throw UsageError(
          fmt::format("import: {} is unknown; there are \"weft\" and files, such as \"./model.js\"", quote(wanted)));
    }
    char* const copy = static_cast<char*>(js_malloc(context, result.size() + 1));
    if (copy) std::memcpy(copy, result.c_str(), result.size() + 1);
    return copy;
  } catch (...) {
    engine.throw_current();
    return nullptr;
  }
}

int fill_weft(JSContext* context, JSModuleDef* module) {
  for (const auto& [name, value] : Engine::of(context).exports)
    if (JS_SetModuleExport(context, module, name.c_str(), JS_DupValue(context, value)) < 0) return -1;
  return 0;
}

JSModuleDef* loaded(JSContext* context, const char* name, void*) {
  Engine& engine = Engine::of(context);
  try {
    if (std::string_view(name) == "weft") {
      JSModuleDef* const module = JS_NewCModule(context, "weft", fill_weft);
      if (!module) return nullptr;
      for (const auto& [export_name, value] : engine.exports)
        if (JS_AddModuleExport(context, module, export_name.c_str()) < 0) return nullptr;
      return module;
    }
    Files::Place place;
    if (!find_root(engine, name, place))
      throw AccessError(fmt::format("import: {} is in no folder for modules", quote(name)));
    const std::string source = compiled(engine, read_all(engine.files->open(place), name, kSourceBytesMax), name);
    const Local function = compiled_module(engine, source, name);  // the context keeps modules
    return static_cast<JSModuleDef*>(JS_VALUE_GET_PTR(function.get()));
  } catch (...) {
    engine.throw_current();
    return nullptr;
  }
}

int stop_compiler(JSRuntime*, void* opaque) {
  Engine& engine = *static_cast<Engine*>(opaque);
  if (!engine.stopping && !engine.is_late()) return 0;
  engine.ran_out_of_time = true;
  return 1;
}

}  // namespace

// ---- Sucrase --------------------------------------------------------------------------------------------------------------------

SourceCompiler::SourceCompiler(Engine& engine) : engine_(engine), runtime_(JS_NewRuntime()) {
  if (!runtime_) throw std::bad_alloc();
  JS_SetMemoryLimit(runtime_, std::size_t{256} << 20);
  JS_SetMaxStackSize(runtime_, std::size_t{1} << 20);
  JS_SetInterruptHandler(runtime_, stop_compiler, &engine);
  context_ = JS_NewContext(runtime_);
  if (!context_) throw std::bad_alloc();
  const auto size = static_cast<std::size_t>(weft_sucrase_end - weft_sucrase_begin) - 1;
  const JSValue made = JS_Eval(context_, weft_sucrase_begin, size, "sucrase.js", JS_EVAL_TYPE_GLOBAL);
  const bool failed = JS_IsException(made);
  JS_FreeValue(context_, made);
  if (failed) throw UsageError("the compiler of TypeScript could not start: " + message());
}

SourceCompiler::~SourceCompiler() {
  if (context_) JS_FreeContext(context_);
  if (runtime_) JS_FreeRuntime(runtime_);
}

std::string SourceCompiler::message() {
  const JSValue error = JS_GetException(context_);
  const char* const text = JS_ToCString(context_, error);
  std::string made = text ? text : "an error without a message";
  JS_FreeCString(context_, text);
  JS_FreeValue(context_, error);
  return made;
}

std::string SourceCompiler::compile(const std::string& source, const std::string& name, bool types, bool elements) {
  JS_UpdateStackTop(runtime_);
  const JSValue global = JS_GetGlobalObject(context_);
  const JSValue transform = JS_GetPropertyStr(context_, global, "transform");
  const std::string options = fmt::format(
      R"({{"transforms": [{}{}{}], "jsxRuntime": "classic", "jsxPragma": "h", "jsxFragmentPragma": "Fragment",)"
      R"( "production": true, "disableESTransforms": true, "preserveDynamicImport": true, "injectCreateRequireForImportRequire": false}})",
      types ? "\"typescript\"" : "", types && elements ? ", " : "", elements ? "\"jsx\"" : "");
  JSValue arguments[] = {JS_NewStringLen(context_, source.data(), source.size()),
                         JS_ParseJSON(context_, options.c_str(), options.size(), "options")};
  const JSValue result = JS_Call(context_, transform, global, 2, arguments);
  std::string code, problem;
  if (JS_IsException(result)) {
    problem = message();
  } else {
    const JSValue text = JS_GetPropertyStr(context_, result, "code");
    std::size_t size = 0;
    if (const char* const bytes = JS_ToCStringLen(context_, &size, text)) {
      code.assign(bytes, size);
      JS_FreeCString(context_, bytes);
    } else {
      problem = message();
    }
    JS_FreeValue(context_, text);
  }
  for (const JSValue value : {result, arguments[0], arguments[1], transform, global}) JS_FreeValue(context_, value);
  if (types && problem.empty())
    if (const std::string dropped = dropped_namespace(source, code); !dropped.empty())
      problem = fmt::format(
          "the namespace {} is not compiled; put its code into a module or an object, or write \"declare namespace\" "
          "for types",
          dropped);
  if (!problem.empty()) {
    JS_ThrowSyntaxError(engine_.context, "%s: %s", name.c_str(), problem.substr(0, 500).c_str());
    throw ScriptThrew{};
  }
  return code;
}

namespace {

// Names what the engine lacks where it only says that it expected something else.
void explain(Engine& engine, const std::string& source) {
  const Local error = engine.take_exception();
  const Local stack(engine.context, JS_GetPropertyStr(engine.context, error.get(), "stack"));
  const std::string place = engine.text(stack.get());
  std::size_t line = 0, column = 0;
  if (const std::size_t end = place.find_last_of("0123456789"); end != std::string::npos) {
    const std::size_t second = place.find_last_of(':', end), first = place.find_last_of(':', second - 1);
    const auto read = [&](std::size_t from, std::size_t& number) {
      std::from_chars(place.data() + from + 1, place.data() + place.size(), number);
    };
    if (second != std::string::npos && first != std::string::npos) read(first, line), read(second, column);
  }
  std::istringstream lines(source);
  std::string text;
  for (std::size_t i = 0; i < line && std::getline(lines, text);) ++i;
  if (line > 0 && column > 0 && column <= text.size() && text[column - 1] == '@')
    engine.set(error.get(), "message",
               engine.string("decorators (@) are not compiled; call the function that the decorator is instead"));
  JS_Throw(engine.context, JS_DupValue(engine.context, error.get()));
}

// A path as the path of a URL.
std::string url_path(const std::string& path) {
  std::string text;
  for (const char c : path) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                          std::string_view("-._~/!$&'()*+,;=:@").find(c) != std::string_view::npos;
    text += is_plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return text;
}

}  // namespace

Local compiled_module(Engine& engine, const std::string& source, const std::string& name) {
  const JSValue made = JS_Eval(engine.context, source.c_str(), source.size(), name.c_str(),
                               JS_EVAL_TYPE_MODULE | JS_EVAL_FLAG_COMPILE_ONLY);
  if (JS_IsException(made)) {
    explain(engine, source);
    throw ScriptThrew{};
  }
  Local function(engine.context, made);
  const Local meta =
      engine.checked(JS_GetImportMeta(engine.context, static_cast<JSModuleDef*>(JS_VALUE_GET_PTR(function.get()))));
  if (fs::path(name).is_absolute()) engine.set(meta.get(), "url", engine.string("file://" + url_path(name)));
  return function;
}

std::string source_for(Engine& engine, std::string source, const std::string& name) {
  return compiled(engine, std::move(source), name);
}

std::string module_source(Engine& engine, const fs::path& file) {
  Files::Place place;
  if (!find_root(engine, file, place))
    throw AccessError(fmt::format("{} is in no folder for modules", quote(file.string())));
  return compiled(engine, read_all(engine.files->open(place), file.string(), kSourceBytesMax), file.string());
}

void define_loader(Engine& engine) {
  // The first of several exports with one name counts: nouns come before ops.
  std::unordered_set<std::string> seen;
  std::erase_if(engine.exports, [&](const auto& each) {
    if (seen.insert(each.first).second) return false;
    JS_FreeValue(engine.context, each.second);
    return true;
  });
  JS_SetModuleLoaderFunc(engine.runtime, normalized, loaded, nullptr);
}

}  // namespace weft::script
