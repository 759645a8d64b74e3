#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/quote.hpp"
#include "script/engine.hpp"
#include "script/files.hpp"
#include "script/loader.hpp"
#include "script/loop.hpp"
#include "script/operations.hpp"
#include "weft/memory_limit.hpp"

namespace weft::script {

namespace fs = std::filesystem;

struct Isolate::State {
  explicit State(IsolateOptions given) : options(std::move(given)), engine(options) {}
  IsolateOptions options;
  Engine engine;
  bool is_conversation = false;

  // Runs `body` within the limits.
  template <class Body>
  Result guarded(Body&& body) {
    engine.stopping = false;
    return turn(std::forward<Body>(body));
  }
  template <class Body>
  Result turn(Body&& body) {
    const auto in = engine.session.enter();
    engine.ran_out_of_time = false;
    engine.deadline.reset();
    if (options.time_limit.count() > 0) engine.deadline = std::chrono::steady_clock::now() + options.time_limit;
    JS_UpdateStackTop(engine.runtime);
    Result result;
    try {
      body(result);
      if (engine.ran_out_of_time) result = late();
    } catch (...) {
      const MemoryForErrors memory(engine);
      engine.throw_current();
      const Local error = engine.take_exception();
      JS_ResetUncatchableError(engine.context);
      result = engine.ran_out_of_time ? late() : result_of(engine, error.get());
    }
    engine.deadline.reset();
    return result;
  }

  Result late() const {
    return {Outcome::time,
            engine.stopping ? std::string("stopped")
                            : fmt::format("the script ran longer than its limit of {} s",
                                          static_cast<double>(options.time_limit.count()) / 1000),
            {}};
  }

  void run_module(const std::string& source, const std::string& name) {
    // The promise of a module whose evaluation has finished.
    Local function = compiled_module(engine, source, name);
    const Local promise = engine.checked(JS_EvalFunction(engine.context, function.release()));
    settle(promise.get());
  }

  Local settle(JSValueConst promise) {
    if (!JS_IsPromise(promise)) {
      engine.loop->run();
      return {engine.context, JS_DupValue(engine.context, promise)};
    }
    JS_PromiseMarkAsHandled(engine.context, promise);
    auto& list = engine.loop->rejections;
    const auto found = std::find_if(list.begin(), list.end(), [&](const auto& each) {
      return JS_VALUE_GET_PTR(each.first) == JS_VALUE_GET_PTR(promise);
    });
    if (found != list.end()) {
      JS_FreeValue(engine.context, found->first);
      JS_FreeValue(engine.context, found->second);
      list.erase(found);
    }
    const auto state = [&] { return JS_PromiseState(engine.context, promise); };
    if (state() == JS_PROMISE_PENDING) engine.loop->run([&] { return state() != JS_PROMISE_PENDING; });
    if (state() == JS_PROMISE_REJECTED) {
      JS_Throw(engine.context, JS_PromiseResult(engine.context, promise));
      throw ScriptThrew{};
    }
    if (state() == JS_PROMISE_PENDING) {
      // Memory that is refused while a promise is settled leaves it pending for ever, without an exception.
      if (engine.loop->seen_memory() > static_cast<std::int64_t>(options.memory_limit / 5 * 2)) {
        JS_ThrowOutOfMemory(engine.context);
        throw ScriptThrew{};
      }
      throw UsageError("the script waits for a promise that nothing will settle");
    }
    engine.loop->run();
    return {engine.context, JS_PromiseResult(engine.context, promise)};
  }

  // Conversations see the exports of "weft" as globals.
  void begin_conversation() {
    if (std::exchange(is_conversation, true)) return;
    const Local global(engine.context, JS_GetGlobalObject(engine.context));
    for (const auto& [name, value] : engine.exports) {
      const JSAtom atom = JS_NewAtom(engine.context, name.c_str());
      if (JS_HasProperty(engine.context, global.get(), atom) == 0)
        JS_SetPropertyStr(engine.context, global.get(), name.c_str(), JS_DupValue(engine.context, value));
      JS_FreeAtom(engine.context, atom);
    }
  }
};

std::string_view name_of(Outcome outcome) {
  constexpr std::string_view kNames[] = {"done", "error", "time", "memory", "stack", "device_memory", "refused"};
  return kNames[static_cast<std::size_t>(outcome)];
}

Result result_of(Engine& engine, JSValueConst error) {
  Result result{Outcome::error, inspect(engine, error), {}};
  if (JS_IsNull(error)) {  // what is thrown if there was no memory for an error
    return {Outcome::memory,
            fmt::format("the script needs more than its limit of {} MB of memory", engine.options.memory_limit >> 20),
            {}};
  }
  if (!JS_IsError(error)) {
    result.message = "uncaught " + result.message;
    return result;
  }
  const std::string& text = result.message;
  const auto is_a = [&](const char* name) {
    const auto found = engine.error_classes.find(name);
    return found != engine.error_classes.end() && JS_IsInstanceOf(engine.context, error, found->second) > 0;
  };
  if (text.starts_with("InternalError: out of memory"))
    result = {Outcome::memory,
              fmt::format("the script needs more than its limit of {} MB of memory\n{}",
                          engine.options.memory_limit >> 20, text),
              {}};
  else if (text.starts_with("RangeError: Maximum call stack size exceeded") ||
           text.starts_with("InternalError: stack overflow"))
    result = {Outcome::stack,
              fmt::format("the script calls deeper than its limit of {} KB of stack\n{}",
                          engine.options.stack_limit >> 10, text),
              {}};
  else if (is_a("DeviceMemoryError"))
    result.outcome = Outcome::device_memory;
  else if (is_a("AccessError"))
    result.outcome = Outcome::refused;
  if (JS_HasException(engine.context)) JS_FreeValue(engine.context, JS_GetException(engine.context));
  return result;
}

Isolate::Isolate(IsolateOptions options) : state_(std::make_unique<State>(std::move(options))) {}
Isolate::~Isolate() = default;

Result Isolate::run(const fs::path& file) {
  std::error_code error;
  const fs::path real = fs::canonical(file, error);
  if (error) throw FileError(fmt::format("{}: there is no such file", quote(file.string())));
  if (!fs::is_regular_file(real))
    throw FileError(fmt::format("{}: it is {}; name a file", quote(file.string()),
                                fs::is_directory(real) ? "a folder" : "not a regular file"));
  Engine& engine = state_->engine;
  engine.module_roots.push_back(real.parent_path());
  return state_->guarded([&](Result&) { state_->run_module(module_source(engine, real), real.string()); });
}

Result Isolate::run_text(std::string_view text, std::string_view name, const fs::path& folder) {
  Engine& engine = state_->engine;
  std::string full(name);
  if (!folder.empty()) {
    engine.module_roots.push_back(fs::canonical(folder));
    full = (engine.module_roots.back() / name).string();
  }
  return state_->guarded([&](Result&) { state_->run_module(source_for(engine, std::string(text), full), full); });
}

Result Isolate::evaluate(std::string_view text) {
  Engine& engine = state_->engine;
  return state_->guarded([&](Result& result) {
    state_->begin_conversation();
    std::string source = source_for(engine, std::string(text), "line.ts");
    // An object literal, not a block.
    if (source.starts_with('{') && source.ends_with('}')) {
      const Local tried(engine.context, JS_Eval(engine.context, ("(" + source + ")").c_str(), source.size() + 2, "line",
                                                JS_EVAL_TYPE_GLOBAL | JS_EVAL_FLAG_COMPILE_ONLY));
      if (JS_IsException(tried.get()))
        JS_FreeValue(engine.context, JS_GetException(engine.context));
      else
        source = "(" + source + ")";
    }
    const Local promise = engine.checked(
        JS_Eval(engine.context, source.c_str(), source.size(), "line", JS_EVAL_TYPE_GLOBAL | JS_EVAL_FLAG_ASYNC));
    const Local wrapped = state_->settle(promise.get());  // {value}
    const Local value = engine.property(wrapped.get(), "value");
    if (!JS_IsUndefined(value.get())) {
      result.value = inspect(engine, value.get());
      const Local global(engine.context, JS_GetGlobalObject(engine.context));
      JS_SetPropertyStr(engine.context, global.get(), "_", JS_DupValue(engine.context, value.get()));
    }
  });
}

Result Isolate::serve() {
  Loop& loop = *state_->engine.loop;
  loop.serves = true;
  for (;;) {
    const Result result = state_->turn([&](Result&) { loop.run(); });
    if (state_->engine.stopping) {
      loop.serves = false;
      return result;
    }
    // What nobody caught ends its turn, and no others.
    if (state_->options.print) state_->options.print(result.message, true);
  }
}

void Isolate::stop() noexcept { state_->engine.stopping = true; }

bool Isolate::is_incomplete(std::string_view text) {
  // Brackets, templates and comments that are open at the end.
  std::string open;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const char top = open.empty() ? 0 : open.back();
    if (top == '`') {
      if (c == '\\')
        ++i;
      else if (c == '`')
        open.pop_back();
      else if (c == '$' && i + 1 < text.size() && text[i + 1] == '{')
        open += '}', ++i;
    } else if (c == '"' || c == '\'') {
      for (++i; i < text.size() && text[i] != c && text[i] != '\n'; ++i)
        if (text[i] == '\\') ++i;
    } else if (c == '/' && i + 1 < text.size() && text[i + 1] == '/') {
      i = std::min(text.find('\n', i), text.size());
    } else if (c == '/' && i + 1 < text.size() && text[i + 1] == '*') {
      const std::size_t end = text.find("*/", i + 2);
      if (end == std::string_view::npos) return true;
      i = end + 1;
    } else if (c == '`') {
      open += '`';
    } else if (c == '(' || c == '[' || c == '{') {
      open += c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (!open.empty() && c == top) {
      open.pop_back();
    }
  }
  return !open.empty();
}

std::vector<std::string> Isolate::completions(std::string_view line) {
  Engine& engine = state_->engine;
  const auto in = engine.session.enter();
  state_->begin_conversation();
  std::size_t begin = line.size();
  const auto is_part = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '.';
  };
  while (begin > 0 && is_part(line[begin - 1])) --begin;
  const std::string_view path = line.substr(begin);
  const std::size_t dot = path.rfind('.');
  const std::string_view prefix = dot == std::string_view::npos ? path : path.substr(dot + 1);
  std::vector<std::string> found;
  try {
    Local object(engine.context, JS_GetGlobalObject(engine.context));
    std::string_view rest = dot == std::string_view::npos ? std::string_view() : path.substr(0, dot);
    if (!rest.empty()) {
      // A let or const is no property of the global object, so the first name is evaluated; names have no effects.
      const std::string first(rest.substr(0, rest.find('.')));
      rest.remove_prefix(std::min(rest.size(), first.size() + 1));
      if (std::isdigit(static_cast<unsigned char>(first[0]))) return {};
      object = engine.checked(JS_Eval(engine.context, first.c_str(), first.size(), "completion", JS_EVAL_TYPE_GLOBAL));
      while (!rest.empty()) {
        const std::string name(rest.substr(0, rest.find('.')));
        rest.remove_prefix(std::min(rest.size(), name.size() + 1));
        JSPropertyDescriptor own{};
        const JSAtom atom = JS_NewAtom(engine.context, name.c_str());
        const int has = JS_IsProxy(object.get()) ? 0 : JS_GetOwnProperty(engine.context, &own, object.get(), atom);
        JS_FreeAtom(engine.context, atom);
        if (has <= 0) return {};
        JS_FreeValue(engine.context, own.getter);
        JS_FreeValue(engine.context, own.setter);
        object = Local(engine.context, own.value);
      }
    }
    for (int depth = 0; depth < 8 && JS_IsObject(object.get()) && !JS_IsProxy(object.get()); ++depth) {
      JSPropertyEnum* names = nullptr;
      std::uint32_t count = 0;
      engine.checked(JS_GetOwnPropertyNames(engine.context, &names, &count, object.get(), JS_GPN_STRING_MASK));
      for (std::uint32_t i = 0; i < count; ++i) {
        const char* const text = JS_AtomToCString(engine.context, names[i].atom);
        if (text && std::string_view(text).starts_with(prefix))
          found.push_back(std::string(line.substr(0, line.size() - prefix.size())) + text);
        JS_FreeCString(engine.context, text);
      }
      JS_FreePropertyEnum(engine.context, names, count);
      object = Local(engine.context, JS_GetPrototype(engine.context, object.get()));
    }
  } catch (const ScriptThrew&) {
    engine.take_exception();
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

std::vector<std::string> Isolate::registered() const {
  if (!state_->engine.operations) return {};
  return operations_of(state_->engine).registered;
}

std::size_t Isolate::handle_count() const { return state_->engine.handles; }
std::uint64_t Isolate::device_bytes() const {
  const auto in = state_->engine.session.enter();
  return device_memory_used();
}

std::string Isolate::leak_report() const {
  struct Place {
    std::map<std::string, int, std::less<>> kinds;
    std::uint64_t bytes = 0;
  };
  std::map<int, Place> places;
  for (const Handle* handle = state_->engine.newest; handle; handle = handle->before) {
    Place& place = places[handle->line];
    ++place.kinds[std::string(handle->kind())];
    place.bytes += handle->bytes();
  }
  std::vector<std::pair<int, Place>> sorted(places.begin(), places.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.bytes > b.second.bytes; });
  std::string text = fmt::format("{} handles are alive\n", handle_count());
  for (const auto& [line, place] : sorted) {
    std::string kinds;
    for (const auto& [kind, count] : place.kinds)
      kinds += fmt::format("{}{} {}", kinds.empty() ? "" : ", ", count, kind);
    const std::string& where = state_->engine.lines[static_cast<std::size_t>(line)];
    text += fmt::format("  {:>12} bytes  {}  {}\n", place.bytes, kinds, where.empty() ? "(no line)" : where);
  }
  return text;
}

}  // namespace weft::script
