// The history file has a line for each entry, appended at once, so neither a kill nor a second chat loses one. Line ends in
// an entry are kept as U+2028.
#include "cli/line_editor.hpp"

#include <fcntl.h>
#include <histedit.h>
#include <langinfo.h>
#include <sys/types.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <string_view>
#include <vector>

#include "base/utf8.hpp"

namespace weft::cli {
namespace {

constexpr int kEntries = 1000;
constexpr std::streamoff kBytesRead = 1 << 20;
constexpr std::string_view kLineEnd = "\xE2\x80\xA8";
constexpr std::wstring_view kPasteEnd = L"\033[201~";

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

/// The last entries of the file, oldest first.
std::vector<std::string> last_entries(const std::filesystem::path& path) {
  std::vector<std::string> entries;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return entries;
  const std::streamoff size = file.tellg(), begin = std::max<std::streamoff>(0, size - kBytesRead);
  file.seekg(begin);
  std::string line;
  if (begin > 0) std::getline(file, line);  // the rest of an entry
  while (std::getline(file, line))
    if (!line.empty() && line.find('\0') == std::string::npos) entries.push_back(replaced(line, kLineEnd, "\n"));
  if (entries.size() > kEntries) entries.erase(entries.begin(), entries.end() - kEntries);
  return entries;
}

}  // namespace

std::filesystem::path state_file(const std::string& name) {
  const auto folder = [](const char* variable) {
    const char* value = std::getenv(variable);
    return std::filesystem::path(value ? value : "");
  };
  if (const auto state = folder("XDG_STATE_HOME"); state.is_absolute()) return state / "weft" / name;
  if (const auto home = folder("HOME"); home.is_absolute()) return home / ".local" / "state" / "weft" / name;
  return {};
}

struct LineEditor::Terminal {
  explicit Terminal(std::filesystem::path file) : path(std::move(file)) {
    // The locale must be set for libedit to edit characters of several bytes as one.
    if (!std::setlocale(LC_CTYPE, "") || std::string_view(nl_langinfo(CODESET)) != "UTF-8")
      std::setlocale(LC_CTYPE, "C.UTF-8");
    editor = el_init("weft", stdin, stdout, stderr);
    past = history_init();
    HistEvent event;
    if (past) {
      history(past, &event, H_SETSIZE, kEntries);
      history(past, &event, H_SETUNIQUE, 1);
    }
    if (!editor) return;
    el_set(editor, EL_CLIENTDATA, this);
    el_set(editor, EL_PROMPT, prompt_of);
    el_set(editor, EL_EDITOR, "emacs");
    el_set(editor, EL_SIGNAL, 1);  // signals leave the terminal as it was
    // Ctrl-C and Ctrl-Z come as characters, and not as signals, while a line is edited.
    el_set(editor, EL_SETTY, "-d", "-isig", nullptr);
    el_set(editor, EL_ADDFN, "weft-interrupt", "Take the line back", interrupt);
    el_set(editor, EL_ADDFN, "weft-suspend", "Stop the process", suspend);
    el_set(editor, EL_ADDFN, "weft-paste", "Insert what is pasted", paste);
    el_set(editor, EL_ADDFN, "weft-complete", "Complete a name", complete);
    el_set(editor, EL_BIND, "^C", "weft-interrupt", nullptr);
    el_set(editor, EL_BIND, "^Z", "weft-suspend", nullptr);
    el_set(editor, EL_BIND, "\\e[200~", "weft-paste", nullptr);
    el_set(editor, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    if (past) el_set(editor, EL_HIST, ::history, past);
    el_source(editor, nullptr);  // the user's ~/.editrc
    if (path.empty()) return;
    for (const std::string& entry : last_entries(path)) remember(entry);
  }
  ~Terminal() {
    if (editor) el_end(editor);
    if (past) history_end(past);
  }

  void remember(const std::string& line) {
    HistEvent event;
    if (past) history(past, &event, H_ENTER, line.c_str());
  }
  /// One write, so that entries of two chats do not mix.
  void keep(const std::string& line) const {
    if (path.empty()) return;
    std::error_code ignored;
    std::filesystem::create_directories(path.parent_path(), ignored);
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (file < 0) return;
    const std::string entry = replaced(line, "\n", kLineEnd) + "\n";
    [[maybe_unused]] const ssize_t written = ::write(file, entry.data(), entry.size());
    ::close(file);
  }

  static Terminal& of(EditLine* editor) {
    void* self = nullptr;
    el_get(editor, EL_CLIENTDATA, &self);
    return *static_cast<Terminal*>(self);
  }
  static const char* prompt_of(EditLine* editor) { return of(editor).prompt.c_str(); }

  static unsigned char interrupt(EditLine* editor, int) {
    of(editor).interrupted = true;
    const LineInfo* const line = el_line(editor);
    el_cursor(editor, static_cast<int>(line->lastchar - line->cursor));
    return CC_NEWLINE;
  }
  static unsigned char suspend(EditLine*, int) {
    ::kill(0, SIGTSTP);
    return CC_REFRESH;
  }
  /// What all candidates have in common is inserted; if that is nothing, they are shown.
  static unsigned char complete(EditLine* editor, int) {
    Terminal& self = of(editor);
    if (!self.candidates) return CC_NORM;
    const LineInfo* const line = el_line(editor);
    const std::string before(line->buffer, static_cast<std::size_t>(line->cursor - line->buffer));
    std::vector<std::string> found = self.candidates(before);
    std::erase_if(found, [&](const std::string& each) { return !each.starts_with(before); });
    if (found.empty()) return CC_REFRESH_BEEP;
    std::string common = found[0];
    for (const std::string& each : found) {
      std::size_t same = 0;
      while (same < common.size() && same < each.size() && common[same] == each[same]) ++same;
      common.resize(same);
    }
    if (common.size() > before.size()) {
      el_insertstr(editor, common.c_str() + before.size());
      return CC_REFRESH;
    }
    const std::size_t start = before.find_last_of(" ([{,;.") + 1;  // npos + 1 is 0
    std::string shown = "\n";
    constexpr std::size_t kShown = 60;
    for (std::size_t i = 0; i < found.size() && i < kShown; ++i)
      shown += found[i].substr(std::min(start, found[i].size())) + "  ";
    if (found.size() > kShown) shown += "... " + std::to_string(found.size() - kShown) + " more";
    std::fputs((shown + "\n").c_str(), stdout);
    std::fflush(stdout);
    return CC_REDISPLAY;
  }
  /// Reads up to the mark that ends a paste.
  static unsigned char paste(EditLine* editor, int) {
    std::wstring text;
    for (wchar_t c = 0; el_wgetc(editor, &c) == 1;) {
      text += c;
      if (text.ends_with(kPasteEnd)) {
        text.resize(text.size() - kPasteEnd.size());
        break;
      }
    }
    std::string bytes;
    for (const wchar_t c : text) {
      const auto code = static_cast<char32_t>(c);
      if (code == 0 || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) continue;
      append_utf8(bytes, code);
    }
    bytes = replaced(replaced(bytes, "\r\n", "\n"), "\r", "\n");
    while (bytes.ends_with('\n')) bytes.pop_back();
    Terminal& self = of(editor);
    if (bytes.find('\n') == std::string::npos) {
      el_insertstr(editor, bytes.c_str());
    } else {
      const auto lines = std::count(bytes.begin(), bytes.end(), '\n') + 1;
      const std::string shown =
          "[pasted #" + std::to_string(self.pasted.size() + 1) + ": " + std::to_string(lines) + " lines]";
      if (el_insertstr(editor, shown.c_str()) == 0) self.pasted.emplace_back(shown, std::move(bytes));
    }
    return CC_REFRESH;
  }

  EditLine* editor = nullptr;
  History* past = nullptr;
  std::filesystem::path path;
  std::string prompt;
  bool interrupted = false;
  std::function<std::vector<std::string>(std::string_view)> candidates;
  std::vector<std::pair<std::string, std::string>> pasted;  // its placeholder in the line, and the text
  // Asks the terminal to mark pasted text.
  const bool marks_pastes = [] {
    const char* term = std::getenv("TERM");
    return term && std::string_view(term) != "dumb";
  }();
};

LineEditor::LineEditor(std::filesystem::path history) : terminal_(std::make_unique<Terminal>(std::move(history))) {}
LineEditor::~LineEditor() = default;

void LineEditor::complete_with(std::function<std::vector<std::string>(std::string_view)> candidates) {
  terminal_->candidates = std::move(candidates);
  if (terminal_->editor) el_set(terminal_->editor, EL_BIND, "^I", "weft-complete", nullptr);
}

TypedLine LineEditor::read(const std::string& prompt) {
  Terminal& t = *terminal_;
  if (!t.editor) return {};
  t.prompt = prompt;
  t.interrupted = false;
  t.pasted.clear();
  const auto mark_pastes = [&](bool on) {
    if (!t.marks_pastes) return;
    std::fputs(on ? "\033[?2004h" : "\033[?2004l", stdout);
    std::fflush(stdout);
  };
  mark_pastes(true);
  int count = 0;
  const char* text = nullptr;
  do {
    errno = 0;
    text = el_gets(t.editor, &count);
  } while (!text && count < 0 && errno == EINTR && !t.interrupted);
  mark_pastes(false);
  std::string line = text && count > 0 ? std::string(text, static_cast<std::size_t>(count)) : std::string();
  const bool ended = line.empty();
  while (line.ends_with('\n') || line.ends_with('\r')) line.pop_back();
  for (const auto& [shown, pasted] : t.pasted)
    if (const std::size_t at = line.find(shown); at != std::string::npos) line.replace(at, shown.size(), pasted);
  if (t.interrupted) return {TypedLine::Kind::interrupted, std::move(line)};
  if (ended) return {};
  if (!line.empty()) {
    t.remember(line);
    t.keep(line);
  }
  return {TypedLine::Kind::text, std::move(line)};
}

struct QuietTyping::Saved {
  termios settings;
};

QuietTyping::QuietTyping() {
  termios now{};
  if (tcgetattr(STDIN_FILENO, &now) != 0) return;
  saved_ = std::make_unique<Saved>(Saved{now});
  now.c_lflag &= ~static_cast<tcflag_t>(ECHO);
  now.c_lflag |= NOFLSH;
  tcsetattr(STDIN_FILENO, TCSANOW, &now);
}
QuietTyping::~QuietTyping() {
  if (saved_) tcsetattr(STDIN_FILENO, TCSANOW, &saved_->settings);
}

}  // namespace weft::cli
