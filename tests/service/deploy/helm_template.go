// Renders the templates of a Helm chart with Go's own text/template and the functions of Helm that the chart uses.
//
// Usage: helm_template TEMPLATE_DIR < values.json, with {"Values": …, "Release": …, "Chart": …} on standard input.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

func indent(spaces int, text string) string {
	padding := strings.Repeat(" ", spaces)
	return padding + strings.ReplaceAll(text, "\n", "\n"+padding)
}

func main() {
	var context map[string]any
	decoder := json.NewDecoder(os.Stdin)
	decoder.UseNumber()
	if err := decoder.Decode(&context); err != nil {
		panic(err)
	}
	root := template.New("chart").Option("missingkey=error")
	root.Funcs(template.FuncMap{
		"include": func(name string, data any) (string, error) {
			var text strings.Builder
			err := root.ExecuteTemplate(&text, name, data)
			return text.String(), err
		},
		"nindent": func(spaces int, text string) string { return "\n" + indent(spaces, text) },
		"quote":   func(value any) string { return fmt.Sprintf("%q", fmt.Sprint(value)) },
		"toJson": func(value any) (string, error) {
			text, err := json.Marshal(value)
			return string(text), err
		},
		"default": func(fallback any, value any) any {
			if value == nil || value == "" {
				return fallback
			}
			return value
		},
		"required": func(message string, value any) (any, error) {
			if value == nil || value == "" {
				return nil, fmt.Errorf("%s", message)
			}
			return value, nil
		},
	})
	files, err := filepath.Glob(filepath.Join(os.Args[1], "*"))
	if err != nil {
		panic(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			panic(err)
		}
		template.Must(root.New(filepath.Base(file)).Parse(string(text)))
	}
	for _, file := range files {
		if strings.HasSuffix(file, ".yaml") {
			fmt.Println("---")
			if err := root.ExecuteTemplate(os.Stdout, filepath.Base(file), context); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}
	}
}
