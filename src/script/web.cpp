// Globals of the web: the native functions under web.js and url.js.
#include <algorithm>
#include <random>
#include <span>

#include "base/utf8.hpp"
#include "script/engine.hpp"
#include "script/loop.hpp"

extern "C" const char weft_web_begin[];
extern "C" const char weft_web_end[];
extern "C" const char weft_url_begin[];
extern "C" const char weft_url_end[];

namespace weft::script {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

/// Bytes of the longest beginning of a sequence that could still become UTF-8; at least 1.
std::size_t broken_length(std::string_view bytes) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned char first = at(0);
  const std::size_t whole = first >= 0xC2 && first <= 0xDF   ? 2
                            : first >= 0xE0 && first <= 0xEF ? 3
                            : first >= 0xF0 && first <= 0xF4 ? 4
                                                             : 1;
  std::size_t length = 1;
  for (; length < whole && length < bytes.size(); ++length) {
    unsigned char least = 0x80, most = 0xBF;
    if (length == 1) {
      if (first == 0xE0) least = 0xA0;
      if (first == 0xED) most = 0x9F;
      if (first == 0xF0) least = 0x90;
      if (first == 0xF4) most = 0x8F;
    }
    if (at(length) < least || at(length) > most) break;
  }
  return length;
}

std::string mended(Engine& engine, std::string_view bytes, bool is_fatal) {
  std::string text;
  while (!bytes.empty()) {
    const std::size_t bad = find_invalid_utf8(bytes).value_or(bytes.size());
    text += bytes.substr(0, bad);
    bytes.remove_prefix(bad);
    if (bytes.empty()) break;
    if (is_fatal) {
      JS_ThrowTypeError(engine.context, "The encoded data was not valid for encoding utf-8");
      throw ScriptThrew{};
    }
    text += kReplacement;
    bytes.remove_prefix(broken_length(bytes));
  }
  return text;
}

std::string_view view_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Local array_of(Engine& engine, std::string_view bytes) {
  return typed_array(engine, DType::u8, std::as_bytes(std::span(bytes)));
}

// encode(text): UTF-8. Surrogates without a partner, three bytes each here, become U+FFFD.
Local encode(Engine& engine, JSValueConst, Arguments arguments) {
  std::string text = engine.text(at(arguments, 0));
  for (std::size_t i = 0; (i = text.find('\xED', i)) != std::string::npos; i += 3)
    if (i + 2 < text.size() && static_cast<unsigned char>(text[i + 1]) >= 0xA0) text.replace(i, 3, kReplacement);
  return array_of(engine, text);
}

// decode(bytes, is_utf8, is_fatal)
Local decode(Engine& engine, JSValueConst, Arguments arguments) {
  const std::vector<std::byte> bytes = bytes_of_buffer(engine, at(arguments, 0), "TextDecoder");
  const bool is_fatal = JS_ToBool(engine.context, at(arguments, 2)) > 0;
  if (JS_ToBool(engine.context, at(arguments, 1)) > 0) return engine.string(mended(engine, view_of(bytes), is_fatal));
  std::vector<std::uint16_t> units(bytes.size() / 2);
  for (std::size_t i = 0; i < units.size(); ++i)
    units[i] =
        static_cast<std::uint16_t>(static_cast<unsigned>(bytes[2 * i]) | static_cast<unsigned>(bytes[2 * i + 1]) << 8);
  return engine.checked(JS_NewStringUTF16(engine.context, units.data(), units.size()));
}

// unfinished(bytes): how many bytes at the end begin a sequence of UTF-8 that more bytes may complete.
Local unfinished(Engine& engine, JSValueConst, Arguments arguments) {
  const std::vector<std::byte> bytes = bytes_of_buffer(engine, at(arguments, 0), "TextDecoder");
  const std::string_view text = view_of(bytes);
  std::uint32_t count = 0;
  for (std::uint32_t n = 1; n <= 3 && n <= text.size() && count == 0; ++n) {
    const std::string_view end = text.substr(text.size() - n);
    const auto first = static_cast<unsigned char>(end[0]);
    if (first >= 0xC2 && first <= 0xF4 && utf8_sequence_length(end) == 0 && broken_length(end) == n &&
        n < (first >= 0xF0   ? 4u
             : first >= 0xE0 ? 3u
                             : 2u))
      count = n;
  }
  return {engine.context, JS_NewUint32(engine.context, count)};
}

Local random(Engine& engine, JSValueConst, Arguments arguments) {
  std::random_device device;
  std::string bytes(static_cast<std::size_t>(engine.number(at(arguments, 0), "crypto")), '\0');
  for (char& byte : bytes) byte = static_cast<char>(device());
  return array_of(engine, bytes);
}

Local is_handle(Engine& engine, JSValueConst, Arguments arguments) {
  return {engine.context, JS_NewBool(engine.context, JS_GetClassID(at(arguments, 0)) != 1)};  // 1: plain objects
}

Local inspected(Engine& engine, JSValueConst, Arguments arguments) {
  return engine.string(inspect(engine, at(arguments, 0)));
}

// release(timer): the script may end before it is due.
Local release(Engine& engine, JSValueConst, Arguments arguments) {
  const auto id = static_cast<std::uint32_t>(engine.number(at(arguments, 0), "AbortSignal.timeout"));
  if (const auto found = engine.loop->timers.find(id); found != engine.loop->timers.end()) found->second.keeps = false;
  return {};
}

Local indent(Engine& engine, JSValueConst, Arguments arguments) {
  const double wanted = static_cast<double>(engine.console_indent) + engine.number(at(arguments, 0), "console.group");
  engine.console_indent = static_cast<std::size_t>(std::clamp(wanted, 0.0, 100.0));
  return {};
}

}  // namespace

void define_web(Engine& engine) {
  Local functions = engine.object();
  const auto add = [&](const char* name, JSCFunction* function) { engine.method(functions.get(), name, function, 1); };
  add("encode", native<encode>);
  add("decode", native<decode>);
  add("unfinished", native<unfinished>);
  add("random", native<random>);
  add("isHandle", native<is_handle>);
  add("inspect", native<inspected>);
  add("indent", native<indent>);
  add("release", native<release>);
  for (const auto& [name, value] : engine.exports)
    if (name == "fetch") engine.set(functions.get(), "fetch", {engine.context, JS_DupValue(engine.context, value)});
  const auto run = [&](const char* begin, const char* end, const char* file) {
    return engine.checked(
        JS_Eval(engine.context, begin, static_cast<std::size_t>(end - begin) - 1, file, JS_EVAL_TYPE_GLOBAL));
  };
  const Local web = run(weft_web_begin, weft_web_end, "weft:web");
  JSValueConst argument = functions.get();
  engine.checked(JS_Call(engine.context, web.get(), JS_UNDEFINED, 1, &argument));
  run(weft_url_begin, weft_url_end, "weft:url");
}

}  // namespace weft::script
