// The history is one line an entry, added at once, so that neither a kill nor a second chat loses what was typed.
#include "cli/line_editor.hpp"

#include <fcntl.h>
#include <histedit.h>
#include <langinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string_view>
#include <vector>

namespace weft::cli {
namespace {

constexpr int kEntries = 1000;
constexpr std::streamoff kBytesRead = 1 << 20;

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
    if (!line.empty() && line.find('\0') == std::string::npos) entries.push_back(line);
  if (entries.size() > kEntries) entries.erase(entries.begin(), entries.end() - kEntries);
  return entries;
}

const char* prompt_of(EditLine* editor) {
  void* text = nullptr;
  el_get(editor, EL_CLIENTDATA, &text);
  return static_cast<const std::string*>(text)->c_str();
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
    // Characters of several bytes are edited as one where the locale says what they are.
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
    el_set(editor, EL_CLIENTDATA, &prompt);
    el_set(editor, EL_PROMPT, prompt_of);
    el_set(editor, EL_EDITOR, "emacs");
    el_set(editor, EL_SIGNAL, 1);  // Ctrl-C leaves the terminal as it was
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
    const std::string entry = line + "\n";
    [[maybe_unused]] const ssize_t written = ::write(file, entry.data(), entry.size());
    ::close(file);
  }

  EditLine* editor = nullptr;
  History* past = nullptr;
  std::filesystem::path path;
  std::string prompt;
};

LineEditor::LineEditor(std::filesystem::path history) : terminal_(std::make_unique<Terminal>(std::move(history))) {}
LineEditor::~LineEditor() = default;

std::optional<std::string> LineEditor::read(const std::string& prompt) {
  if (!terminal_->editor) return std::nullopt;
  terminal_->prompt = prompt;
  int count = 0;
  const char* text = nullptr;
  do {
    errno = 0;
    text = el_gets(terminal_->editor, &count);
  } while (!text && count < 0 && errno == EINTR);
  if (!text || count <= 0) return std::nullopt;
  std::string line(text, static_cast<std::size_t>(count));
  while (line.ends_with('\n') || line.ends_with('\r')) line.pop_back();
  if (!line.empty()) {
    terminal_->remember(line);
    terminal_->keep(line);
  }
  return line;
}

}  // namespace weft::cli
