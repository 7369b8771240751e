package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// question is what the model is asked.
type question struct {
	Prompt    string `json:"prompt"`
	MaxTokens int64  `json:"max_tokens"`
}

// chunk is one event of an answer. The last one has the usage.
type chunk struct {
	Text  string `json:"text,omitempty"`
	Usage *usage `json:"usage,omitempty"`
	Error string `json:"error,omitempty"`
}

// usage is how many tokens an answer took.
type usage struct {
	Prompt     int64 `json:"prompt_tokens"`
	Completion int64 `json:"completion_tokens"`
}

// tokensOf counts the tokens of a text, as the model does: a word is one.
func tokensOf(text string) int64 { return int64(len(strings.Fields(text))) }

// model stands for a language model: it answers with words, one event for each.
type model struct {
	// words is how many it would say; max_tokens of the question cuts them off.
	words int64
	// wait is called before each event. It returns an error if the answer is to break off, without
	// its usage.
	wait func(r *http.Request, said int64) error
}

// ServeHTTP streams an answer.
func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var q question
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&q); err != nil {
		http.Error(w, "the question is not valid JSON: "+err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	n := min(m.words, q.MaxTokens)
	for said := range n {
		if m.wait(r, said) != nil {
			return // without the usage
		}
		send(w, chunk{Text: fmt.Sprint("word", said)})
	}
	if m.wait(r, n) != nil {
		return // without the usage
	}
	send(w, chunk{Usage: &usage{tokensOf(q.Prompt), n}})
}

// send writes an event. If the reader is gone, its context ends.
func send(w http.ResponseWriter, c chunk) {
	text, _ := json.Marshal(c) // it has texts and numbers only
	_, _ = fmt.Fprintf(w, "data: %s\n\n", text)
	_ = http.NewResponseController(w).Flush()
}
