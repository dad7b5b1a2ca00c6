// Logs by topic, chosen with BRAZE_LOGS="graph,guards,..." or set_log_topics().
// Use: if (log_enabled(Topic::kGraph)) log(Topic::kGraph, text);
#pragma once

#include <string>
#include <string_view>

namespace braze {

enum class Topic : unsigned {
#define TOPIC(name, text, about) k##name,
#include "braze/support/topics.def"
#undef TOPIC
  kCount
};

bool log_enabled(Topic topic);
// Writes each line of `text` to standard error, prefixed with the topic.
void log(Topic topic, std::string_view text);
// "graph,guards" or "" (none); returns the first word that is no topic, or "".
std::string set_log_topics(std::string_view words);
// Printed always (a fall-back to eager, an unusable cache folder): once per distinct text in a process.
void warn_once(std::string_view text);
void reset_warnings();

}  // namespace braze
