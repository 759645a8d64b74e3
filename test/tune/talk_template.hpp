// A chat template that marks who speaks, and ends each turn.
#pragma once

namespace weft::tune {

inline constexpr const char* kTalkTemplate =
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}";

}  // namespace weft::tune
