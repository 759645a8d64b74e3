// Encodes and decodes for tokenizer_judge.py: tokenizer_dump TOKENIZER.json TEXTS.json RESULTS.json
//
// TEXTS.json is a list of texts as hexadecimal bytes. RESULTS.json has an object for each, or {"error": message}.
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "text/tokenizer.hpp"
#include "weft/error.hpp"

namespace {

using nlohmann::json;
using namespace weft::text;

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

json results_of(const Tokenizer& tokenizer, const std::string& text) {
  const auto ids = tokenizer.encode(text);
  json result{{"ids", ids}};
  result["plain"] = tokenizer.encode(text, {.add_special = false, .parse_special = false});
  result["pair"] = tokenizer.encode_pair(text, "B b");
  result["text"] = tokenizer.decode(ids, true);
  result["all"] = tokenizer.decode(ids, false);
  StreamDecoder stream(tokenizer, false);
  std::string streamed;
  for (const TokenId id : ids) streamed += stream.put(id);
  result["streamed"] = streamed + stream.finish();
  return result;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 4) return 2;
  try {
    const Tokenizer tokenizer = Tokenizer::from_json_file(arguments[1]);
    std::ifstream in(arguments[2]);
    json results = json::array();
    for (const auto& hex : json::parse(in)) {
      try {
        results.push_back(results_of(tokenizer, from_hex(hex)));
      } catch (const weft::UsageError& error) {
        results.push_back({{"error", error.what()}});
      }
    }
    std::ofstream(arguments[3]) << results;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
