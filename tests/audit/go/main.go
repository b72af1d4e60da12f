// Checks what a log printed with the proof and note code of others. Reads JSON on stdin, one claim a line, and answers
// one line each: "ok", or why not.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
	"golang.org/x/mod/sumdb/note"
)

type claim struct {
	Kind string `json:"kind"`

	Index    uint64   `json:"index"`
	Size     uint64   `json:"size"`
	Leaf     []byte   `json:"leaf"`
	Root     []byte   `json:"root"`
	From     uint64   `json:"from"`
	To       uint64   `json:"to"`
	FromRoot []byte   `json:"from_root"`
	ToRoot   []byte   `json:"to_root"`
	Proof    [][]byte `json:"proof"`

	Note string   `json:"note"`
	Keys []string `json:"keys"`
	// Text is what the note must say; Signer is a private key that must be readable and make the same signature line.
	Text   string `json:"text"`
	Signer string `json:"signer"`
}

func check(c claim) error {
	switch c.Kind {
	case "inclusion":
		return proof.VerifyInclusion(rfc6962.DefaultHasher, c.Index, c.Size, rfc6962.DefaultHasher.HashLeaf(c.Leaf), c.Proof, c.Root)
	case "consistency":
		return proof.VerifyConsistency(rfc6962.DefaultHasher, c.From, c.To, c.Proof, c.FromRoot, c.ToRoot)
	case "note":
		return checkNote(c)
	}
	return fmt.Errorf("unknown kind %q", c.Kind)
}

func checkNote(c claim) error {
	var verifiers []note.Verifier
	for _, key := range c.Keys {
		verifier, err := note.NewVerifier(key)
		if err != nil {
			return err
		}
		verifiers = append(verifiers, verifier)
	}
	opened, err := note.Open([]byte(c.Note), note.VerifierList(verifiers...))
	if err != nil {
		return err
	}
	if opened.Text != c.Text || len(opened.Sigs) != len(c.Keys) {
		return fmt.Errorf("text %q with %d signatures", opened.Text, len(opened.Sigs))
	}
	if c.Signer == "" {
		return nil
	}
	signer, err := note.NewSigner(c.Signer)
	if err != nil {
		return err
	}
	signed, err := note.Sign(&note.Note{Text: c.Text}, signer)
	if err != nil {
		return err
	}
	if string(signed) != c.Note {
		return fmt.Errorf("signed otherwise: %q", signed)
	}
	return nil
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for lines.Scan() {
		var c claim
		err := json.Unmarshal(lines.Bytes(), &c)
		if err == nil {
			err = check(c)
		}
		if err != nil {
			fmt.Fprintln(out, err)
		} else {
			fmt.Fprintln(out, "ok")
		}
	}
}
