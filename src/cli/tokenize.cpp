// weft tokenize
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/quote.hpp"
#include "cli/commands.hpp"
#include "cli/input.hpp"
#include "cli/language_model.hpp"
#include "cli/output.hpp"
#include "jinja/json.hpp"
#include "text/load_tokenizer.hpp"
#include "weft/error.hpp"

namespace weft::cli {
namespace {

using text::TokenId;
using OrderedJson = nlohmann::ordered_json;

struct TokenizeRequest {
  std::filesystem::path model, file;
  std::optional<std::string> text, decode;
  bool ids = false, pieces = false, count = false, json = false, plain = false, no_special = false,
       skip_special = false, batch = false;
};

constexpr std::uint64_t kMaxTextBytes = std::uint64_t{1} << 30;

// "1,2 3" -> 1, 2, 3.
std::vector<TokenId> parse_ids(std::string_view list) {
  std::vector<TokenId> ids;
  for (std::size_t at = 0;;) {
    at = list.find_first_not_of(", \t\n[]", at);
    if (at == std::string_view::npos) break;
    TokenId id = 0;
    const auto [end, error] = std::from_chars(list.data() + at, list.data() + list.size(), id);
    if (error != std::errc() || id < 0)
      throw UsageError(
          fmt::format("--decode {}: expected an id at character {}; write numbers with commas or spaces between",
                      quote(list, 60), at + 1));
    ids.push_back(id);
    at = static_cast<std::size_t>(end - list.data());
  }
  return ids;
}

std::string text_of(const TokenizeRequest& request) {
  if (request.text && !request.file.empty()) throw UsageError("give TEXT or --file, not both");
  if (request.text) return *request.text;
  return read_text(request.file.empty() ? "-" : request.file, kMaxTextBytes);
}

int put(std::string_view out) {
  put_foreign(out);
  return kOk;
}

std::string decoded(const TokenizeRequest& request, const text::Tokenizer& tokenizer, std::string_view list) {
  const std::vector<TokenId> ids = parse_ids(list);
  for (const TokenId id : ids)
    if (!tokenizer.piece(id))
      throw UsageError(fmt::format("--decode: no token has the id {}; ids of this vocabulary are below {}", id,
                                   tokenizer.vocabulary_size()));
  const std::string text = tokenizer.decode(ids, request.skip_special);
  return request.json ? json_text(OrderedJson{{"text", text}}) + "\n" : text + "\n";
}

/// The output for one text. In batches it takes one line, except for lists of pieces.
std::string tokenized(const TokenizeRequest& request, const text::Tokenizer& tokenizer, std::string_view text) {
  const std::vector<TokenId> ids =
      tokenizer.encode(text, {.add_special = !request.no_special, .parse_special = !request.plain});
  const auto piece = [&](TokenId id) { return tokenizer.piece(id).value_or(""); };
  if (request.json) {
    OrderedJson result{{"count", ids.size()}};
    if (!request.count && !request.pieces) result["ids"] = ids;
    if (!request.count && !request.ids) {
      result["pieces"] = OrderedJson::array();
      for (const TokenId id : ids) result["pieces"].push_back(piece(id));
    }
    return json_text(result) + "\n";
  }
  if (request.count) return fmt::format("{}\n", ids.size());
  if (request.ids || (request.batch && !request.pieces)) return fmt::format("{}\n", fmt::join(ids, " "));
  std::string out;
  for (const TokenId id : ids) {
    if (request.pieces)
      out += quote(piece(id), 4096) + (request.batch ? " " : "\n");
    else
      out += fmt::format("{:>8}  {}\n", id, quote(piece(id), 4096));
  }
  if (request.batch) {
    if (!out.empty()) out.pop_back();
    out += '\n';
  }
  return out;
}

/// A text a line, and a line of output for each. With --json a line may be a JSON string, which holds line ends too.
int batch(const TokenizeRequest& request, const text::Tokenizer& tokenizer) {
  const std::string all = text_of(request);
  std::string_view rest = all;
  for (std::size_t number = 1; !rest.empty(); ++number) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    try {
      std::string held;
      if (request.json && !request.decode && line.starts_with('"')) {
        const OrderedJson json = jinja::parse_ordered_json(line, "the line");
        line = held = json.get<std::string>();
      }
      if (!put_foreign(request.decode ? decoded(request, tokenizer, line) : tokenized(request, tokenizer, line)))
        return kOk;  // nobody reads on
    } catch (Error& error) {
      error.add_context(fmt::format("line {}", number));
      throw;
    }
  }
  return kOk;
}

int tokenize(const TokenizeRequest& request) {
  if (request.ids + request.pieces + request.count > 1) throw UsageError("give one of --ids, --pieces and --count");
  const text::Tokenizer tokenizer = text::load_tokenizer(model_path(request.model));
  if (request.batch) {
    if (request.decode && !request.decode->empty())
      throw UsageError("--batch reads lists of ids from --file or standard input: write --decode \"\"");
    return batch(request, tokenizer);
  }
  if (request.decode) {
    if (request.text || !request.file.empty()) throw UsageError("give a text or --decode, not both");
    return put(decoded(request, tokenizer, *request.decode));
  }
  return put(tokenized(request, tokenizer, text_of(request)));
}

}  // namespace

void set_up_tokenize(CLI::App& app, Action& action) {
  auto request = std::make_shared<TokenizeRequest>();
  TokenizeRequest& r = *request;
  app.add_option("text", r.text, "text to cut into tokens; without it and --file, standard input");
  app.add_option(
         "--model", r.model,
         "a tokenizer.json, a folder that holds one, or a GGUF file; hf:OWNER/NAME:tokenizer.json fetches it alone")
      ->required();
  app.add_option("--file", r.file, "read the text from a file; - is standard input");
  app.add_flag("--ids", r.ids, "print ids only, on one line");
  app.add_flag("--pieces", r.pieces, "print pieces only, one a line");
  app.add_flag("--count", r.count, "print the number of tokens");
  app.add_option("--decode", r.decode, "print the text of these ids instead, such as 1,2,3");
  app.add_flag(
      "--batch", r.batch,
      "each line is a text, and gets a line of output: ids, or --pieces, --count, --json (whose lines may be JSON "
      "strings); with --decode \"\" each line is a list of ids");
  app.add_flag("--json", r.json, "for machines");
  app.add_flag("--plain", r.plain, "treat special and added tokens that are written out in the text as plain text");
  app.add_flag("--no-special", r.no_special, "add no tokens around the text, such as BOS");
  app.add_flag("--skip-special", r.skip_special, "--decode leaves special tokens out");
  app.callback([&action, request] { action = [request] { return tokenize(*request); }; });
}

}  // namespace weft::cli
