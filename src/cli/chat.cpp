// weft chat
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "base/file.hpp"
#include "base/quote.hpp"
#include "cli/commands.hpp"
#include "cli/conversation.hpp"
#include "cli/input.hpp"
#include "cli/language_model.hpp"
#include "cli/line_editor.hpp"
#include "cli/output.hpp"
#include "cli/stop_on_interrupt.hpp"
#include "cli/voice_chat.hpp"
#include "cli/word_wrap.hpp"
#include "llm/reasoning.hpp"
#include "weft/error.hpp"
#include "weft/image.hpp"

namespace weft::cli {
namespace {

constexpr const char* kHelp =
    "  /help                  this list\n"
    "  /clear                 forget the conversation\n"
    "  /system TEXT           set what the model is told first; without TEXT, nothing\n"
    "  /file PATH [QUESTION]  ask about the text of a file\n"
    "  /image PATH QUESTION   ask about an image, PNG or JPEG; without QUESTION, the next one does\n"
    "  /undo                  take back the last question and its answer\n"
    "  /again                 answer the last question anew\n"
    "  /set NAME VALUE        change a setting; without NAME, list them\n"
    "  /history               the conversation so far\n"
    "  /save FILE             write the conversation as JSON\n"
    "  /load FILE             go on with a conversation that was saved\n"
    "  /stats                 speed of the last answer\n"
    "  /exit, /quit, /bye     leave; so do the end of the input, and Ctrl-C twice\n"
    "Several lines: paste them, or put them between two lines of \"\"\", or end lines\n"
    "with \\. A message that begins with / is written with two: //.\n"
    "Ctrl-C stops an answer, and takes back a line.\n";

constexpr std::uint64_t kMessageBytesMax = std::uint64_t{16} << 20;
constexpr std::string_view kQuotes = "\"\"\"";

struct ChatRequest {
  ModelOptions model;
  DrawOptions draw;
  std::string system, question, prompt;
  std::filesystem::path file;
  std::vector<std::filesystem::path> images;
  VoiceChatOptions voice;
};

std::string shown_text(const llm::Message& m) {
  std::string text = m.content;
  if (!m.parts.empty()) text.clear();
  for (const llm::ContentPart& part : m.parts) text += part.text;
  return text;
}

int columns_of_terminal() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

/// The settings that /set stores without a check of its own.
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
        terminal_(isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)),
        styled_(isatty(STDOUT_FILENO)) {
    conversation_.system = request.system;
    if (!model_.has_template())
      throw UsageError(
          "weft chat: the model has no chat template; give one with --chat-template FILE, or use weft generate");
    model_.check(options_);
    require_utf8_text(conversation_.system, "--system");
    for (const std::filesystem::path& image : request.images) take_image(image);
  }

  /// Answers one question.
  int ask(const std::string& question) {
    require_utf8_text(question, "the question");
    one_shot_ = true;
    put_question(question);
    answer();
    return failed_ ? kUsage : kOk;
  }
  /// The last answer, without its reasoning.
  const std::string& last_answer() const { return conversation_.turns.back().content; }

  int run() {
    if (terminal_) {
      editor_.emplace(state_file("chat_history"));
      put_text("/help lists the commands.\n");
    }
    bool pressed = false;  // Ctrl-C, just before
    for (;;) {
      Input input;
      try {
        input = read_message();
        if (input.kind == TypedLine::Kind::text) require_utf8_text(input.text, "the line was not taken");
      } catch (const UsageError& error) {
        tell(error);
        continue;
      }
      if (input.kind == TypedLine::Kind::end) break;
      if (input.kind == TypedLine::Kind::interrupted) {
        put_text("\n");
        if (pressed) return kOk;
        put_text("Press Ctrl-C again to leave.\n");
        pressed = true;
        continue;
      }
      pressed = false;
      if (input.text.find_first_not_of(" \t\n") == std::string::npos) continue;
      if (!input.quoted && input.text.starts_with('/') && !input.text.starts_with("//")) {
        if (!command(input.text)) break;
        continue;
      }
      if (!input.quoted && input.text.starts_with("//")) input.text.erase(0, 1);
      put_question(input.text);
      if (!answer()) break;
    }
    if (terminal_) put_text("\n");
    return failed_ && !terminal_ ? kUsage : kOk;
  }

 private:
  struct Input {
    TypedLine::Kind kind = TypedLine::Kind::end;
    std::string text;
    bool quoted = false;  // between """, so it is not a command
  };

  static TypedLine piped_line() {
    TypedLine line;
    for (int c; (c = std::getc(stdin)) != EOF;) {
      line.kind = TypedLine::Kind::text;
      if (c == '\n') break;
      if (line.text.size() < kMessageBytesMax + 1) line.text += static_cast<char>(c);
    }
    if (line.text.size() > kMessageBytesMax)
      throw UsageError(fmt::format("a line of more than {} bytes was not taken; give a shorter one", kMessageBytesMax));
    if (line.text.ends_with('\r')) line.text.pop_back();
    return line;
  }

  TypedLine read_line(const char* prompt) { return editor_ ? editor_->read(prompt) : piped_line(); }

  /// A message or a command: a line, lines that are joined by a \ at their ends, or lines between """.
  Input read_message() {
    Input input;
    for (bool first = true, goes_on = true; goes_on; first = false) {
      TypedLine line = read_line(first ? "> " : ". ");
      if (line.kind == TypedLine::Kind::interrupted) return {line.kind, {}};
      if (line.kind == TypedLine::Kind::end) {
        if (first) return {};
        break;  // drops the rest of a message that was begun
      }
      input.kind = line.kind;
      std::string_view text = line.text;
      if (first && text.starts_with(kQuotes)) {
        input.quoted = true;
        text.remove_prefix(kQuotes.size());
      }
      const std::string_view end = input.quoted ? kQuotes : std::string_view("\\");
      const bool has_end = text.ends_with(end);
      if (has_end) text.remove_suffix(end.size());
      goes_on = input.quoted ? !has_end : has_end;
      if (!first) input.text += '\n';
      input.text += text;
      if (input.text.size() > kMessageBytesMax)
        throw UsageError(
            fmt::format("a message of more than {} bytes was not taken; give a shorter one", kMessageBytesMax));
    }
    if (input.quoted) {  // the lines of the quotes themselves
      if (input.text.starts_with('\n')) input.text.erase(0, 1);
      if (input.text.ends_with('\n')) input.text.pop_back();
    }
    return input;
  }

  void take_image(const std::filesystem::path& path) {
    if (!model_.reads_images())
      throw UsageError(
          fmt::format("{}: the model reads no images; take the folder of a model that sees (docs/vision.md), or give "
                      "the mmproj file of a GGUF file with --mmproj",
                      path.string()));
    images_.emplace_back(image::read(path));
  }

  /// A question, with the images that wait for it in front.
  void put_question(const std::string& question) {
    llm::Message message{"user", question};
    if (!images_.empty()) {
      message.parts = std::exchange(images_, {});
      message.parts.emplace_back(question);
    }
    conversation_.turns.push_back(std::move(message));
  }

  /// Reports a request that failed: with a message now, and through the exit code if no person is reading.
  void tell(const Error& error) { tell(std::string_view(error.what())); }
  void tell(std::string_view text) {
    put_message(text);
    failed_ = true;
  }

  /// Drops the oldest turns when the conversation and an answer would not fit the context. Frees half of the context at
  /// once, because the model reads the rest again after each drop.
  void make_room() {
    const Extent context = model_.context(), reserve = std::min(options_.max_tokens, context / 4);
    const auto length = [&] { return static_cast<Extent>(model_.chat_tokens(conversation_.shown()).size()); };
    if (length() + reserve <= context) return;
    const std::size_t before = conversation_.forgotten;
    while (conversation_.forget_oldest() && length() > context / 2) continue;
    if (const std::size_t dropped = conversation_.forgotten - before; dropped > 0)
      put_message(
          fmt::format("note: the conversation has outgrown the context of {} positions; the model no longer sees its "
                      "first {} messages "
                      "(--context sets the size)",
                      context, conversation_.forgotten));
  }

  /// False when nobody reads the output any more.
  bool answer() {
    std::optional<QuietTyping> quiet;
    if (terminal_) quiet.emplace();
    StopOnInterrupt stop;
    llm::GenerateOptions options = options_;
    options.cancel = stop.token();
    bool thinks = false;  // some templates open the reasoning themselves
    bool reads = true;
    wrap_.restart();
    try {
      make_room();
      const std::vector<llm::Message> shown = conversation_.shown();
      thinks = llm::opens_reasoning(model_.render(shown));
      llm::ReasoningSplitter splitter(thinks);
      llm::Generation generation = model_.chat(shown, options);
      for (const std::string_view piece : generation) {
        for (const auto& part : splitter.put(piece)) reads = reads && show(part);
        if (!reads) stop.request_stop();
      }
      for (const auto& part : splitter.finish()) reads = reads && show(part);
      last_ = generation.result();
    } catch (const UsageError& error) {  // for example, the question is too long: the conversation must survive
      if (one_shot_) throw;
      conversation_.turns.pop_back();
      conversation_.forgotten = std::min(conversation_.forgotten, conversation_.turns.size());
      tell(error);
      return true;
    }
    reads = put_text(thinking_ && styled_ ? "\033[0m\n" : "\n") && reads;
    thinking_ = false;
    conversation_.turns.push_back({"assistant", llm::without_reasoning(last_->text, thinks)});
    if (terminal_ && !one_shot_) put_text(fmt::format("\033[2m{}\033[0m\n", short_speed_text()));
    // At a terminal the signal stops the answer. From a pipe, or as SIGTERM, it ends the whole chat.
    if (stop.signal() != 0 && (stop.signal() != SIGINT || !terminal_ || one_shot_)) throw Interrupted{};
    return reads;
  }

  std::string short_speed_text() const {
    const auto count = static_cast<double>(last_->tokens.size());
    std::string text = fmt::format("{} tokens", last_->tokens.size());
    if (last_->seconds > 0) text += fmt::format(", {:.1f} a second", count / last_->seconds);
    if (last_->finish != llm::Finish::length) return text;
    const bool full = last_->prompt_tokens + static_cast<Extent>(last_->tokens.size()) >= model_.context();
    return text + (full ? fmt::format("; cut, as the context of {} positions is full", model_.context())
                        : fmt::format("; cut at max-tokens, {} (/set max-tokens)", options_.max_tokens));
  }

  /// Reasoning is dim on a terminal; elsewhere it goes to the other stream, so that answers can be piped on.
  bool show(const llm::ReasoningSplitter::Part& part) {
    if (!styled_) {
      if (!part.reasoning) return put_text(part.text);
      const std::string text = isatty(STDERR_FILENO) ? for_terminal(part.text) : part.text;
      std::fwrite(text.data(), 1, text.size(), stderr);
      return true;
    }
    if (part.reasoning != thinking_) {
      put_text(part.reasoning ? "\033[2m" : "\033[0m\n");
      if (!part.reasoning) wrap_.restart();
    }
    thinking_ = part.reasoning;
    return put_text(wrap_.put(for_terminal(part.text)));
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
      conversation_.clear();
    } else if (name == "system") {
      conversation_.system = rest;
    } else if (name == "undo" || name == "again") {
      const auto question = conversation_.take_back();
      if (!question) {
        tell("there is no question to take back");
      } else if (name == "again") {
        conversation_.turns.push_back(*question);
        return answer();
      }
    } else if (name == "history") {
      for (const llm::Message& m : conversation_.all())
        put_foreign(fmt::format("{}: {}{}\n", m.role, m.parts.empty() ? "" : "[image] ", shown_text(m)));
    } else if (name == "stats") {
      put_text(last_ ? speed_text(*last_) + "\n" : "there is no answer yet\n");
    } else if (name == "set") {
      set(rest);
    } else if (name == "file" || name == "image") {
      return ask_about_file(name == "image", rest);
    } else if (name == "save" || name == "load") {
      keep(name, rest);
    } else {
      tell(fmt::format("/{} is not a command; /help lists them all", name));
    }
    return true;
  }

  /// Splits "PATH QUESTION"; a path with spaces is in quotes.
  bool ask_about_file(bool is_image, std::string_view rest) {
    try {
      const char quote = rest.starts_with('"') || rest.starts_with('\'') ? rest[0] : ' ';
      if (quote != ' ') rest.remove_prefix(1);
      const std::size_t end = std::min(rest.find(quote), rest.size());
      const std::string path(rest.substr(0, end));
      std::string_view question = rest.substr(std::min(end + 1, rest.size()));
      question.remove_prefix(std::min(question.find_first_not_of(' '), question.size()));
      if (path.empty()) throw UsageError(fmt::format("/{}: give the file's name", is_image ? "image" : "file"));
      if (is_image) {
        take_image(path);
        if (question.empty()) return true;
        put_question(std::string(question));
        return answer();
      }
      std::string text = read_text_file(path, kMessageBytesMax);
      require_utf8_text(text, path);
      if (!question.empty()) text = fmt::format("{}\n\n{}", question, text);
      put_question(text);
    } catch (const Error& error) {
      tell(error);
      return true;
    }
    return answer();
  }

  void list_settings() {
    const llm::Sampling& s = options_.sampling;
    std::string text;
    for (const auto& [name, member] : kRealSettings) text += fmt::format("  {:<20}{}\n", name, s.*member);
    text += fmt::format("  {:<20}{}\n  {:<20}{}\n  {:<20}{}\n", "top-k", s.top_k, "seed",
                        s.seed ? fmt::to_string(*s.seed) : "another each time", "max-tokens", options_.max_tokens);
    put_text(text);
  }

  void set(const std::string& rest) {
    if (rest.empty()) return list_settings();
    const std::size_t space = rest.find(' ');
    const std::string name = rest.substr(0, space), text = space == std::string::npos ? "" : rest.substr(space + 1);
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || std::isnan(value) || end != text.data() + text.size() || text.empty()) {
      tell(fmt::format("/set {}: expected a number, got \"{}\"", name, text));
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
      return tell(fmt::format("/set {} {}: there is no such setting; /set lists them", name, text));
    try {
      model_.check(changed);
      options_ = changed;
    } catch (const UsageError& error) {
      tell(error);
    }
  }

  void keep(const std::string& command, const std::string& path) {
    try {
      if (path.empty()) throw UsageError(fmt::format("/{}: give the file's name", command));
      if (command == "save") {
        write_file_atomically(path, to_json(conversation_));
        return;
      }
      Conversation loaded = conversation_from_json(read_text_file(path, kMessageBytesMax), path);
      model_.render(loaded.shown());  // the template may refuse it
      conversation_ = std::move(loaded);
      if (terminal_) put_text(fmt::format("{} messages\n", conversation_.turns.size()));
    } catch (const Error& error) {
      tell(error);
    }
  }

  llm::Model model_;
  llm::GenerateOptions options_;
  Conversation conversation_;
  std::optional<llm::Result> last_;
  bool terminal_, styled_, thinking_ = false, one_shot_ = false;
  bool failed_ = false;  // a question or a command
  WordWrap wrap_{columns_of_terminal};
  std::optional<LineEditor> editor_;      // of a terminal
  std::vector<llm::ContentPart> images_;  // of the next question
};

/// The one question of the command line, if there is one: from an argument, a file, a sound, or several of them.
std::optional<std::string> question_of(const ChatRequest& request) {
  if (!request.question.empty() && !request.prompt.empty())
    throw UsageError("weft chat: give the question as an argument or with --prompt, not both");
  std::string question = request.question + request.prompt;
  if (!request.file.empty()) {
    std::string text = read_text(request.file, kMessageBytesMax);
    if (text.ends_with('\n')) text.pop_back();
    question = question.empty() ? text : fmt::format("{}\n\n{}", question, text);
  }
  if (!request.voice.listen.empty()) {
    const std::string heard = hear(request.voice, request.model);
    put_message("heard: " + heard);
    question = question.empty() ? heard : fmt::format("{}\n\n{}", question, heard);
  }
  if (question.empty()) return std::nullopt;
  return question;
}

int chat(const ChatRequest& request) {
  check(request.voice);
  const std::optional<std::string> question = question_of(request);
  if (!request.voice.say.empty() && !question)
    throw UsageError("--say is for the answer to one question; give it, or --listen FILE");
  Chat chat(request, load_language_model(request.model));
  if (!question) return chat.run();
  const int code = chat.ask(*question);
  if (code == kOk && !request.voice.say.empty()) say(chat.last_answer(), request.voice, request.model);
  return code;
}

}  // namespace

void set_up_chat(CLI::App& app, Action& action) {
  auto request = std::make_shared<ChatRequest>();
  request->draw.generate.max_tokens = 1024;
  add_model_options(app, request->model);
  add_image_options(app, request->model);
  app.add_option("question", request->question, "answer this and end, instead of a chat");
  app.add_option("-p,--prompt", request->prompt, "the same");
  app.add_option("-f,--file", request->file,
                 "answer the text of a file and end, after the question if there is one; - is standard input");
  app.add_option("--image", request->images,
                 "an image, PNG or JPEG, for the first question; may be given several times")
      ->allow_extra_args(false);
  app.add_option("--system", request->system, "what the model is told first");
  app.add_option("--chat-template", request->model.chat_template, "a template in Jinja, in place of the model's own");
  add_voice_options(app, request->voice);
  add_draw_options(app, request->draw);
  app.callback([&action, request] { action = [request] { return chat(*request); }; });
}

}  // namespace weft::cli
