// weft chat
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "base/file.hpp"
#include "base/json.hpp"
#include "cli/commands.hpp"
#include "cli/language_model.hpp"
#include "cli/line_editor.hpp"
#include "cli/output.hpp"
#include "cli/stop_on_interrupt.hpp"
#include "llm/reasoning.hpp"
#include "weft/error.hpp"

namespace weft::cli {
namespace {

constexpr const char* kHelp =
    "  /help             this list\n"
    "  /clear            forget the conversation\n"
    "  /system TEXT      set what the model is told first; without TEXT, nothing\n"
    "  /undo             take back the last question and its answer\n"
    "  /again            answer the last question anew\n"
    "  /set NAME VALUE   temperature, top-k, top-p, min-p, typical, repetition-penalty, frequency-penalty,\n"
    "                    presence-penalty, seed or max-tokens\n"
    "  /history          the conversation so far\n"
    "  /save FILE        write the conversation as JSON\n"
    "  /stats            speed of the last answer\n"
    "  /exit             or the end of the input\n"
    "A line that ends in \\ goes on in the next one. Ctrl-C stops an answer.\n";

struct ChatRequest {
  ModelOptions model;
  DrawOptions draw;
  std::string system;
};

/// What /set takes as it is.
constexpr std::pair<std::string_view, double llm::Sampling::*> kRealSettings[] = {
    {"temperature", &llm::Sampling::temperature},
    {"top-p", &llm::Sampling::top_p},
    {"min-p", &llm::Sampling::min_p},
    {"typical", &llm::Sampling::typical},
    {"repetition-penalty", &llm::Sampling::repetition_penalty},
    {"frequency-penalty", &llm::Sampling::frequency_penalty},
    {"presence-penalty", &llm::Sampling::presence_penalty},
};

class Chat {
 public:
  Chat(const ChatRequest& request, llm::Model model)
      : model_(std::move(model)),
        options_(generate_options(request.draw)),
        system_(request.system),
        terminal_(isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)) {
    if (terminal_) editor_.emplace(state_file("chat_history"));
  }

  int run() {
    if (!model_.has_template())
      throw UsageError("weft chat: the model has no chat template, so it is not made for chats; use weft generate");
    model_.check(options_);
    require_utf8_text(system_, "--system");
    if (terminal_) put_text("/help lists the commands.\n");
    while (const auto line = read_line()) {
      if (line->find_first_not_of(" \t") == std::string::npos) continue;
      try {
        require_utf8_text(*line, "the line was not taken");
      } catch (const UsageError& error) {
        put_message(error.what());
        continue;
      }
      if (line->starts_with('/')) {
        if (!command(*line)) break;
        continue;
      }
      history_.push_back({"user", *line});
      if (!answer()) break;
    }
    if (terminal_) put_text("\n");
    return kOk;
  }

 private:
  static std::optional<std::string> piped_line() {
    std::string line;
    if (!std::getline(std::cin, line)) return std::nullopt;
    if (line.ends_with('\r')) line.pop_back();
    return line;
  }
  std::optional<std::string> read_line() {
    std::string text;
    for (;;) {
      std::optional<std::string> line = editor_ ? editor_->read(text.empty() ? "> " : ". ") : piped_line();
      if (!line) return text.empty() ? std::nullopt : std::optional(text);
      const bool goes_on = line->ends_with('\\');
      if (goes_on) line->pop_back();
      text += *line;
      if (!goes_on) return text;
      text += '\n';
    }
  }

  std::vector<llm::Message> messages() const {
    std::vector<llm::Message> list;
    if (!system_.empty()) list.push_back({"system", system_});
    list.insert(list.end(), history_.begin(), history_.end());
    return list;
  }

  /// False when nobody reads the output any more.
  bool answer() {
    StopOnInterrupt stop;
    llm::GenerateOptions options = options_;
    options.cancel = stop.token();
    bool thinks = false;  // from the first word on, as some templates have it
    bool reads = true;
    try {
      thinks = llm::opens_reasoning(model_.render(messages()));
      llm::ReasoningSplitter splitter(thinks);
      llm::Generation generation = model_.chat(messages(), options);
      for (const std::string_view piece : generation) {
        for (const auto& part : splitter.put(piece)) reads = reads && show(part);
        if (!reads) stop.request_stop();
      }
      for (const auto& part : splitter.finish()) reads = reads && show(part);
      last_ = generation.result();
    } catch (const UsageError& error) {  // the conversation is too long, say: that is no reason to lose it
      history_.pop_back();
      put_message(error.what());
      if (!history_.empty()) put_message("/clear forgets the conversation, /undo its last turn");
      return true;
    }
    reads = put_text(thinking_ && terminal_ ? "\033[0m\n" : "\n") && reads;
    thinking_ = false;
    history_.push_back({"assistant", llm::without_reasoning(last_.text, thinks)});
    if (terminal_) put_text(fmt::format("\033[2m{}\033[0m\n", short_speed_text()));
    // A person at a terminal stops the answer; whoever feeds a pipe, or ends the process, means the chat.
    if (stop.signal() != 0 && (stop.signal() != SIGINT || !terminal_)) throw Interrupted{};
    return reads;
  }

  std::string short_speed_text() const {
    const auto count = static_cast<double>(last_.tokens.size());
    std::string text = fmt::format("{} tokens", last_.tokens.size());
    if (last_.seconds > 0) text += fmt::format(", {:.1f} a second", count / last_.seconds);
    if (last_.finish == llm::Finish::length) text += "; cut, as max-tokens or the context was reached";
    return text;
  }

  /// Reasoning is dim on a terminal; elsewhere it goes to the other stream, so that answers can be piped on.
  bool show(const llm::ReasoningSplitter::Part& part) {
    if (!terminal_ && part.reasoning) {
      std::fwrite(part.text.data(), 1, part.text.size(), stderr);
      return true;
    }
    if (terminal_ && part.reasoning != thinking_) put_text(part.reasoning ? "\033[2m" : "\033[0m\n");
    thinking_ = part.reasoning;
    return put_text(part.text);
  }

  /// False at the end.
  bool command(const std::string& line) {
    const std::size_t space = line.find(' ');
    const std::string name = line.substr(1, space == std::string::npos ? space : space - 1),
                      rest = space == std::string::npos ? "" : line.substr(space + 1);
    if (name == "exit" || name == "quit" || name == "bye") return false;
    if (name == "help" || name == "?") {
      put_text(kHelp);
    } else if (name == "clear" || name == "new") {
      history_.clear();
    } else if (name == "system") {
      system_ = rest;
    } else if (name == "undo") {
      take_back();
    } else if (name == "again") {
      if (const auto question = take_back()) {
        history_.push_back({"user", *question});
        return answer();
      }
    } else if (name == "history") {
      for (const llm::Message& m : messages()) put_text(fmt::format("{}: {}\n", m.role, m.content));
    } else if (name == "stats") {
      put_text(speed_text(last_) + "\n");
    } else if (name == "set") {
      set(rest);
    } else if (name == "save") {
      save(rest);
    } else {
      put_message(fmt::format("/{} is no command; /help lists them", name));
    }
    return true;
  }

  std::optional<std::string> take_back() {
    if (!history_.empty() && history_.back().role == "assistant") history_.pop_back();
    if (history_.empty()) {
      put_message("there is no question to take back");
      return std::nullopt;
    }
    const std::string question = history_.back().content;
    history_.pop_back();
    return question;
  }

  void set(const std::string& rest) {
    const std::size_t space = rest.find(' ');
    const std::string name = rest.substr(0, space), text = space == std::string::npos ? "" : rest.substr(space + 1);
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || std::isnan(value) || end != text.data() + text.size() || text.empty()) {
      put_message(fmt::format("/set {}: \"{}\" is no number", name, text));
      return;
    }
    const auto whole = [&] { return static_cast<Extent>(std::clamp(value, -1e15, 1e15)); };
    llm::GenerateOptions changed = options_;
    llm::Sampling& s = changed.sampling;
    const auto* real = std::find_if(std::begin(kRealSettings), std::end(kRealSettings),
                                    [&](const auto& each) { return each.first == name; });
    if (real != std::end(kRealSettings))
      s.*real->second = value;
    else if (name == "top-k")
      s.top_k = whole();
    else if (name == "seed" && value >= 0)
      s.seed = static_cast<std::uint64_t>(whole());
    else if (name == "max-tokens")
      changed.max_tokens = whole();
    else
      put_message(fmt::format("/set {} {}: there is no such setting; /help lists them", name, text));
    try {
      model_.check(changed);
      options_ = changed;
    } catch (const UsageError& error) {
      put_message(error.what());
    }
  }

  void save(const std::string& path) {
    Json list = Json::array();
    for (const llm::Message& m : messages()) list.push_back({{"role", m.role}, {"content", m.content}});
    try {
      if (path.empty()) throw UsageError("/save: give the file's name");
      const std::string text = list.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
      write_file_atomically(path, text);
    } catch (const Error& error) {
      put_message(error.what());
    }
  }

  llm::Model model_;
  llm::GenerateOptions options_;
  std::string system_;
  std::vector<llm::Message> history_;
  llm::Result last_;
  bool terminal_, thinking_ = false;
  std::optional<LineEditor> editor_;  // of a terminal
};

}  // namespace

void set_up_chat(CLI::App& app, Action& action) {
  auto request = std::make_shared<ChatRequest>();
  request->draw.generate.max_tokens = 1024;
  add_model_options(app, request->model);
  app.add_option("--system", request->system, "what the model is told first");
  add_draw_options(app, request->draw);
  app.callback(
      [&action, request] { action = [request] { return Chat(*request, load_language_model(request->model)).run(); }; });
}

}  // namespace weft::cli
