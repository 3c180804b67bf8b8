package campaign

import (
	"fmt"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/llmprof/llmprof/settings"
)

// maxShared bounds the values that aliases stand for, all of a file together.
const maxShared = 100_000

// resolver puts what anchors name in the place of their aliases, and into
// mappings what they merge. A fault of a shared value stands at the anchor.
type resolver struct {
	*reader
	anchors map[string]ast.Node
	// values counts what stands below a node, it included, and shared what
	// aliases have added.
	values map[ast.Node]int
	shared int
}

// resolve returns the body without anchors, aliases and merge keys; tags are
// refused. What is wrong is among the faults.
func (r *reader) resolve(body ast.Node) ast.Node {
	for _, node := range ast.Filter(ast.TagType, body) {
		r.fault(node.GetToken(), "tags are not supported", "leave it out; a text that looks like a number stands in quotes")
	}
	s := resolver{reader: r, anchors: map[string]ast.Node{}, values: map[ast.Node]int{}}
	return s.node(body)
}

func (s *resolver) node(node ast.Node) ast.Node {
	switch n := node.(type) {
	case *ast.AnchorNode:
		value := s.node(n.Value)
		if value == nil {
			value = ast.Null(n.GetToken())
		}
		s.anchors[n.Name.GetToken().Value] = value
		return value
	case *ast.AliasNode:
		return s.alias(n)
	case *ast.SequenceNode:
		count := 1
		for i, value := range n.Values {
			n.Values[i] = s.node(value)
			count += s.count(n.Values[i])
		}
		s.values[n] = count
	case *ast.MappingNode:
		n.Values = s.pairs(n.Values)
		s.values[n] = s.below(n.Values)
	case *ast.MappingValueNode:
		pairs := s.pairs([]*ast.MappingValueNode{n})
		if len(pairs) == 1 && pairs[0] == n {
			s.values[n] = s.below(pairs)
			return n
		}
		merged := ast.Mapping(n.Key.GetToken(), false, pairs...)
		s.values[merged] = s.below(pairs)
		return merged
	}
	return node
}

// alias is what an alias stands for.
func (s *resolver) alias(n *ast.AliasNode) ast.Node {
	name := n.Value.GetToken().Value
	value, ok := s.anchors[name]
	if !ok {
		s.fault(n.GetToken(), fmt.Sprintf("there is no anchor &%s above", settings.Clip(name)), "")
		return ast.Null(n.GetToken())
	}
	before := s.shared
	if s.shared += s.count(value); s.shared <= maxShared {
		return value
	}
	s.shared = maxShared + 1 // and no more is looked up
	if before <= maxShared {
		s.fault(n.GetToken(), fmt.Sprintf("the aliases stand for more than %d values", maxShared), "write what models share under defaults")
	}
	return ast.Null(n.GetToken())
}

// count is the number of values that stand in a node, it included.
func (s *resolver) count(node ast.Node) int { return max(s.values[node], 1) }

func (s *resolver) below(pairs []*ast.MappingValueNode) int {
	count := 1
	for _, p := range pairs {
		count += s.count(p.Value)
	}
	return count
}

// pairs are a mapping's own with those that it merges behind: its own win over
// merged ones, and of these the first.
func (s *resolver) pairs(given []*ast.MappingValueNode) []*ast.MappingValueNode {
	var own, merged []*ast.MappingValueNode
	var first *token.Token
	for _, p := range given {
		if key, ok := s.node(p.Key).(ast.MapKeyNode); ok {
			p.Key = key
		} else {
			s.fault(p.Key.GetToken(), "a key is a text, and the alias stands for something else", "")
		}
		p.Value = s.node(p.Value)
		if p.Key.Type() != ast.MergeKeyType {
			own = append(own, p)
			continue
		}
		if first != nil {
			s.fault(p.Key.GetToken(), "<< stands twice", "merge a list: <<: [*a, *b]")
		}
		first = p.Key.GetToken()
		merged = append(merged, s.merged(p.Value)...)
	}
	known := map[string]bool{}
	for _, p := range own {
		known[settings.KeyOf(p)] = true
	}
	for _, p := range merged {
		if key := settings.KeyOf(p); !known[key] {
			known[key] = true
			own = append(own, p)
		}
	}
	return own
}

// merged are the pairs of what a merge key names: a mapping, or a list of them.
func (s *resolver) merged(value ast.Node) []*ast.MappingValueNode {
	if pairs, ok := settings.Pairs(value); ok || value.Type() == ast.NullType {
		return pairs
	}
	list, ok := value.(*ast.SequenceNode)
	if !ok {
		s.fault(settings.Start(value), "<<: want a mapping or a list of them, got "+settings.Describe(value), "")
		return nil
	}
	var all []*ast.MappingValueNode
	for _, one := range list.Values {
		pairs, ok := settings.Pairs(one)
		if !ok {
			s.fault(settings.Start(one), "<<: want a mapping, got "+settings.Describe(one), "")
		}
		all = append(all, pairs...)
	}
	return all
}
